package cli

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/keyhook/keyhook/server/cli/client"
)

// Figure is a measurement, for tests of the table. Target is about the ratio where there is one.
type Figure struct {
	Title           string
	Value, Ratio    float64
	AtLeast, AtMost float64
	Absent          bool
}

func WriteTable(w io.Writer, figures ...Figure) {
	var measured []measurement
	for _, f := range figures {
		measured = append(measured, measurement{
			title: f.Title, value: f.Value, unit: "ms", ratio: f.Ratio, absent: f.Absent,
			target: target{atLeast: f.AtLeast, atMost: f.AtMost, ofRatio: f.Ratio != 0},
		})
	}
	writeTable(w, measured)
}

// NewBenchReceiver returns the handler of the benchmark's receiver.
func NewBenchReceiver() http.Handler { return newBenchReceiver() }

// DeliveredText returns the body of a delivery with a stamp of the given time.
func DeliveredText(eventType string, size int, at time.Time) string {
	_, body, _ := strings.Cut(string(newRequest("", "", "", deliveredText(eventType, size)).stamped(nil, at)), "\r\n\r\n")
	return body
}

// PublishRequest returns the text of a request with its stamps set.
func PublishRequest(key, eventType string, size, n int, at time.Time) string {
	return string(publishRequest(key, eventType, size, n).stamped(nil, at))
}

// ClientExamples returns the example of each command that is a client of the API, by the command's path.
func ClientExamples() map[string]string {
	examples := map[string]string{}
	root := New(Options{})
	for _, group := range root.Commands() {
		if group.PersistentFlags().Lookup(client.FlagToken) == nil {
			continue
		}
		if group.Runnable() {
			examples[group.CommandPath()] = group.Example
		}
		for _, cmd := range group.Commands() {
			examples[cmd.CommandPath()] = cmd.Example
		}
	}
	return examples
}
