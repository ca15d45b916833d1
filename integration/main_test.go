package integration

import (
	"testing"

	"github.com/sox-host/sox-host/integration/internal/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
