package diagnosis

import (
	"bytes"
	"fmt"
	"strconv"
)

// choice is one way in which a part of the signature may have come about. mistake is nil for the right way.
type choice[T any] struct {
	value   T
	mistake *Mistake
}

func (c choice[T]) weight() int {
	if c.mistake == nil {
		return 0
	}
	return 1
}

// wrong returns a choice for a mistake.
func wrong[T any](value T, name, what, advice string) choice[T] {
	return choice[T]{value, &Mistake{name, what, advice, true}}
}

// Bounds of the search: mistakes at once, and how many bytes it may hash for that, which takes half a second.
const (
	mostMistakes = 3
	hashLimit    = 256 << 20
)

// search looks for the least number of mistakes that lead to one of the signatures as they were written. ok is false
// where there is none.
func (d Delivery) search(scheme Scheme, given []written) (mistakes []Mistake, ok bool) {
	if len(given) == 0 {
		return nil, false
	}
	s := searcher{
		given: given, secrets: d.secrets(), keys: keys(scheme), messages: d.messages(scheme), methods: methods(given), bodies: bodies(d.Body),
	}
	for weight := range mostMistakes + 1 {
		if s.combinations(weight)*(len(d.Body)+overhead) > hashLimit {
			break
		}
		if mistakes, ok := s.bySecret(weight); ok {
			return mistakes, true
		}
		if weight == 1 {
			if mistakes, ok := d.searchClock(scheme, given); ok {
				return mistakes, true
			}
		}
	}
	return nil, false
}

// searcher holds the tables for one search.
type searcher struct {
	given    []written
	secrets  []choice[string]
	keys     []choice[func(secret string) []byte]
	messages []choice[message]
	methods  []choice[method]
	bodies   []choice[[]byte]
}

// overhead is what an HMAC hashes beside the body, about.
const overhead = 200

// combinations returns how many there are of exactly so many mistakes.
func (s searcher) combinations(weight int) int {
	ways := make([]int, weight+1) // to make so many mistakes in the parts so far
	ways[0] = 1
	for _, size := range []int{len(s.secrets), len(s.keys), len(s.messages), len(s.methods), len(s.bodies)} {
		for w := weight; w > 0; w-- {
			ways[w] += ways[w-1] * (size - 1)
		}
	}
	return ways[weight]
}

// bySecret tries all combinations of exactly so many mistakes: first every secret, and for each of them every key.
func (s searcher) bySecret(weight int) ([]Mistake, bool) {
	for _, secret := range s.secrets {
		for _, key := range s.keys {
			left := weight - secret.weight() - key.weight()
			k := key.value(secret.value)
			if left < 0 || k == nil {
				continue
			}
			if mistakes, ok := s.byMessage(left, k); ok {
				return join(mistakes, secret.mistake, key.mistake), true
			}
		}
	}
	return nil, false
}

// byMessage goes on with every message, method and body.
func (s searcher) byMessage(weight int, key []byte) ([]Mistake, bool) {
	for _, m := range s.messages {
		for _, method := range s.methods {
			for _, body := range s.bodies {
				if m.weight()+method.weight()+body.weight() != weight {
					continue
				}
				sum := method.value(key, m.value, body.value)
				for _, g := range s.given {
					if g.is(sum) {
						return join(join(nil, body.mistake, m.mistake, method.mistake), g.mistakes...), true
					}
				}
			}
		}
	}
	return nil, false
}

// join appends those that are mistakes.
func join(all []Mistake, more ...*Mistake) []Mistake {
	for _, m := range more {
		if m != nil {
			all = append(all, *m)
		}
	}
	return all
}

// clockSearch is how far around the timestamp another one is looked for, in seconds.
const clockSearch = 900

// searchClock looks for a signature over another time than that of the header, as of code that asks its own clock.
func (d Delivery) searchClock(scheme Scheme, given []written) ([]Mistake, bool) {
	stamp, ok := seconds(d.Header.Get(d.timestampHeader(scheme)))
	key := keys(scheme)[0].value(d.Secret)
	if !ok || key == nil || 2*clockSearch*len(d.Body) > hashLimit {
		return nil, false
	}
	for off := int64(-clockSearch); off <= clockSearch; off++ {
		sum := hmacSHA256(key, d.canonical(scheme, strconv.FormatInt(stamp+off, 10)), d.Body)
		for _, g := range given {
			if g.is(sum) {
				return join([]Mistake{{"timestamp_of_own_clock",
					fmt.Sprintf("The signature was made over another time than the one in %s: %+d seconds from it.", d.timestampHeader(scheme), off),
					"Take the timestamp from the header, as text, and ask the clock only whether it is recent enough.", true}}, g.mistakes...), true
			}
		}
	}
	return nil, false
}

// seconds reads a timestamp.
func seconds(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && len(text) <= 12
}

// is compares with a signature as it was written, of which some may have been cut off.
func (w written) is(sum []byte) bool {
	if w.cut {
		return bytes.HasPrefix(sum, w.sum)
	}
	return bytes.Equal(sum, w.sum)
}
