package handover

// Linked is for tests: a lost answer cannot be staged.
var Linked = linked
