//go:build !sabotage

package sabotage

// On reports whether the switch is on: never.
func On(Switch) bool { return false }
