package fault_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/keyhook/keyhook/storage/fault"
)

func TestAdvice(t *testing.T) {
	t.Parallel()
	advised := fault.Advise(fmt.Errorf("open x; y: %w", fs.ErrNotExist), "run: touch %s", "x")

	t.Run("says what happened and then what to do, and keeps the error", func(t *testing.T) {
		t.Parallel()
		if want := "open x; y: file does not exist; run: touch x"; advised.Error() != want || !errors.Is(advised, fs.ErrNotExist) {
			t.Errorf("says %q", advised)
		}
	})
	t.Run("of no error is no error", func(t *testing.T) {
		t.Parallel()
		if err := fault.Advise(nil, "do nothing"); err != nil {
			t.Errorf("got %v", err)
		}
	})
	t.Run("leaves a mend that is there", func(t *testing.T) {
		t.Parallel()
		if got := fault.AdviseMissing(fmt.Errorf("start: %w", advised), "do something else"); got.Error() != "start: "+advised.Error() {
			t.Errorf("says %q", got)
		}
		if _, mend := fault.Split(fault.AdviseMissing(fs.ErrExist, "choose another name")); mend != "choose another name" {
			t.Errorf("the mend is %q", mend)
		}
	})
	for name, c := range map[string]struct {
		err        error
		what, mend string
	}{
		"an advice":                       {advised, "open x; y: file does not exist", "run: touch x"},
		"an advice with words before it":  {fmt.Errorf("start: %w", advised), "start: open x; y: file does not exist", "run: touch x"},
		"an advice with words after it":   {fmt.Errorf("%w (again)", advised), advised.Error() + " (again)", "run: touch x"},
		"an error without a mend nowhere": {errors.New("this; that"), "this; that", ""},
	} {
		t.Run("splits "+name, func(t *testing.T) {
			t.Parallel()
			if what, mend := fault.Split(c.err); what != c.what || mend != c.mend {
				t.Errorf("got %q and %q", what, mend)
			}
		})
	}
}
