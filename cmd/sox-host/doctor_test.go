package main

import (
	"testing"

	"github.com/sox-host/sox-host/host"
)

func TestDoctorSumLeavesNothingOut(t *testing.T) {
	for want, counts := range map[string]map[host.Level]int{
		"no problems":                   {host.LevelOK: 5, host.LevelNote: 2},
		"no problems, 1 warning":        {host.LevelWarning: 1},
		"1 problem":                     {host.LevelProblem: 1},
		"2 problems, 3 warnings":        {host.LevelProblem: 2, host.LevelWarning: 3},
		"no problems, 1 fixed":          {host.LevelFixed: 1},
		"1 problem, 1 warning, 2 fixed": {host.LevelProblem: 1, host.LevelWarning: 1, host.LevelFixed: 2},
	} {
		if got := doctorSum(counts); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
