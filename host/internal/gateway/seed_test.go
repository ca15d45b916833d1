package gateway

import "testing"

// The rows of the seed systems that the gateway carries, each as the transcript that shows it.

func TestSeed_A3_PlainMethodsWithoutHandshake(t *testing.T) { playFile(t, "plain") }

func TestSeed_B1_ListsFromCacheEverythingElseRelayed(t *testing.T) { playFile(t, "warm") }

func TestSeed_B10_OneNoticeForAChangedListNoneForAnEqualOne(t *testing.T) { playFile(t, "upgrade") }

func TestSeed_B22_ProjectPathInEveryToolCall(t *testing.T) { playFile(t, "context") }

func TestSeed_C5_CancelIgnoresUnknownIdsAndIsNotAnswered(t *testing.T) { playFile(t, "cancel_queued") }

func TestSeed_C11_IdsThatNoAnswerCouldName(t *testing.T) { playFile(t, "ids") }

func TestSeed_C10_ReadOnlyLockRefusesWrites(t *testing.T) { playFile(t, "limits") }
