package storage_test

import (
	"strconv"
	"testing"

	"github.com/keyhook/keyhook/storage"
)

func TestStatementsHaveTheNumbersOfTheStates(t *testing.T) {
	t.Parallel()
	states, outcomes, causes := storage.SQLNumbers()
	for state, number := range states {
		if number != strconv.Itoa(int(state)) {
			t.Errorf("%v is written as %s", state, number)
		}
	}
	for outcome, number := range outcomes {
		if number != strconv.Itoa(int(outcome)) {
			t.Errorf("%v is written as %s", outcome, number)
		}
	}
	for cause, number := range causes {
		if number != strconv.Itoa(int(cause)) {
			t.Errorf("%v is written as %s", cause, number)
		}
	}
}
