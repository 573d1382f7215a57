//go:build sabotage

package sabotage

import "os"

// Variable is the environment variable that names the switch.
const Variable = "RUNNEL_SABOTAGE"

var on = Switch(os.Getenv(Variable))

// On reports whether the switch is on.
func On(s Switch) bool { return s == on }
