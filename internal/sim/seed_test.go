package sim

import _ "berth/internal/testkit" // the seed of property tests
