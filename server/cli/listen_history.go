package cli

import "sync"

// mostRemembered is how many event ids are remembered.
const mostRemembered = 10_000

// history knows the events that came of late, by their id, and how they were answered last. It is safe for concurrent use.
type history struct {
	mu     sync.Mutex
	last   map[string]string
	oldest []string
}

func newHistory() *history { return &history{last: map[string]string{}} }

// before returns how an event was answered the last time; "" where it comes for the first time, or has no id.
func (h *history) before(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[id]
}

// answered remembers how.
func (h *history) answered(id, how string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id == "" {
		return
	}
	if _, known := h.last[id]; !known {
		if len(h.oldest) == mostRemembered {
			delete(h.last, h.oldest[0])
			h.oldest = h.oldest[1:]
		}
		h.oldest = append(h.oldest, id)
	}
	h.last[id] = how
}
