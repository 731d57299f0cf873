package job

import _ "berth/internal/tests/testkit" // the seed of property tests
