package apply_test

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkApply makes 1,000 changes in one write, which other writes wait for.
func BenchmarkApply(b *testing.B) {
	for name, item := range map[string]string{
		"organizations": `"organizations":[%s]|{"external_id":"c%[1]d","name":"C","plan":"growth"}`,
		"permissions":   `"permissions":[%s]|{"key":"a:b%[1]d"}`,
		"event_types":   `"event_types":[%s]|{"type":"t%[1]d","description":"D","example":{"text":"` + strings.Repeat("x", 4000) + `"}}`,
		"users":         `"users":[%s]|{"external_id":"u%[1]d","name":"U","email":"u%[1]d@example.com"}`,
		"subscriptions": `"organizations":[{"external_id":"c","name":"C","plan":"enterprise"}],"subscriptions":[%s]|{"organization":"c","external_id":"s%[1]d","url":"https://example.com/",` + secret + `}`,
	} {
		section, object, _ := strings.Cut(item, "|")
		list := make([]string, 999)
		for i := range list {
			list[i] = fmt.Sprintf(object, i)
		}
		document := fmt.Sprintf(section, strings.Join(list, ","))
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				f := serve(b)
				b.StartTimer()
				if r := f.apply(b, document); r.status != 200 {
					b.Fatal(r.text)
				}
			}
		})
	}
}
