package fanout

import (
	"strings"
	"sync"

	"github.com/keyhook/keyhook/storage/filter"
	"github.com/keyhook/keyhook/storage/sqlite"
)

// The reads of old events ask the same as the cache, in SQL: which of them does a subscription want?

// Wanted is the condition for an event e of the types of a subscription. The parameters :exact and :prefix are from PatternLists;
// :excluded is a JSON array of types that it never receives.
const Wanted = `(e.type IN (SELECT value FROM json_each(:exact))
	  OR EXISTS (SELECT 1 FROM json_each(:prefix) prefix WHERE substr(e.type, 1, length(prefix.value)) = prefix.value))
	AND e.type NOT IN (SELECT value FROM json_each(:excluded))`

// Passes is the condition for an event e that passes a filter. The parameter :filter is its text; if it is empty, every event passes.
const Passes = `(:filter = '' OR passes(:filter, e.body))`

// PatternLists returns patterns as two JSON arrays: whole types and prefixes. AnyType is the empty prefix.
func PatternLists(patterns []string) (exact, prefix string) {
	types, beginnings := []string{}, []string{}
	for _, p := range patterns {
		if beginning, ok := strings.CutSuffix(p, "*"); ok {
			beginnings = append(beginnings, beginning)
		} else {
			types = append(types, p)
		}
	}
	return sqlite.TextList(types), sqlite.TextList(beginnings)
}

// RegisterPasses gives statements the function of Passes, once for all databases of the process.
var RegisterPasses = sync.OnceValue(func() error {
	return sqlite.RegisterFunction("passes", func(text string, body []byte) (bool, error) {
		f, err := filter.Parse(text)
		return err == nil && f.Passes(filter.DocumentOfBody(body)), err
	})
})
