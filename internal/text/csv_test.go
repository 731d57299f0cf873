package text

import "testing"

// TestNoCellIsAFormula: a spreadsheet takes none of them for something to work out.
func TestNoCellIsAFormula(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "train": "train", "a=b": "a=b", "'=x": "'=x", "12": "12", "-5": "-5", "-0.5": "-0.5", "+3": "+3",
		"=cmd()|x": "'=cmd()|x", "+1+cmd|x": "'+1+cmd|x", "-2+3": "'-2+3", "@SUM(1)": "'@SUM(1)", "--lr 0.1": "'--lr 0.1",
		"\t=x": "'\t=x", "\r=x": "'\r=x", "\n=x": "'\n=x", "-": "'-", "=": "'=",
	} {
		if got := CSVCell(value); got != want {
			t.Errorf("%q became %q, not %q", value, got, want)
		}
	}
}
