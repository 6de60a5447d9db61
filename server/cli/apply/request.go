package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/keyhook/keyhook/server/cli/client"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/storage/fault"
)

type request struct {
	prune    bool
	removals []string // that the user has seen; nil before
	list     []*entry
	entries  map[string]*entry // by path in the body
}

func newRequest(list []*entry, prune bool) *request {
	q, made := &request{prune, nil, list, map[string]*entry{}}, map[string]int{}
	for _, e := range list {
		q.entries[fmt.Sprintf("document.%s.%d", e.section, made[e.section])] = e
		made[e.section]++
	}
	return q
}

// body returns the body of the request. A dry run needs no secrets.
func (q *request) body(dry bool) ([]byte, error) {
	document := map[string][]map[string]any{}
	for _, e := range q.list {
		fields := maps.Clone(e.fields)
		if e.secret != "" && !dry {
			fields["secret"] = e.secret
		}
		document[e.section] = append(document[e.section], fields)
	}
	body := map[string]any{"document": document, "prune": q.prune, "dry_run": dry}
	if q.removals != nil {
		body["removals"] = q.removals
	}
	return json.Marshal(body)
}

// errTooMuch says that a file is too large for one request.
var errTooMuch = errors.New("the file needs more changes, or moves or makes more deliveries, than one request may")

// refusal is a response that says that the server has changed nothing.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// send makes a request, and returns the changes. The error is Problems for problems of the file.
func (r *runner) send(ctx context.Context, q *request, dry bool) (d difference, err error) {
	body, err := q.body(dry)
	if err != nil {
		return d, err
	}
	got, err := r.client.Send(ctx, "POST", "/api/v1/apply/", body)
	if err != nil {
		return d, err
	}
	if got.OK() {
		return d, json.Unmarshal(got.Body, &d)
	}
	err = r.client.Refusal(got)
	p, isProblem := errors.AsType[client.Problem](err)
	switch {
	case !isProblem || got.Status >= http.StatusInternalServerError:
		return d, err
	case p.Code == "too_many_changes" || p.Code == "too_large":
		mend := "split the file"
		if q.prune { // each part would remove the objects of the other parts
			mend = "keep some of the objects that it would remove in the file, and remove them in a later run"
		}
		return d, &refusal{fault.Advise(errTooMuch, "%s", mend)}
	case len(p.Errors) == 0:
		return d, &refusal{err}
	}
	problems := Problems{file: r.name, isPart: r.isPart}
	for _, e := range p.Errors {
		problems.problems = append(problems.problems, r.locate(q, e.Field, e.Message))
	}
	return d, &refusal{problems}
}

// objectPath finds the paths of objects in a message.
var objectPath = regexp.MustCompile(`document\.[a-z_]+\.[0-9]+`)

// locate adds the line to a problem that the server has found at a path.
func (r *runner) locate(q *request, path, message string) problem {
	message = objectPath.ReplaceAllStringFunc(message, func(path string) string {
		if e := q.entries[path]; e != nil {
			return "line " + strconv.Itoa(e.line)
		}
		return path
	})
	at := objectPath.FindString(path)
	e := q.entries[at]
	if e == nil {
		section, isSection := strings.CutPrefix(path, "document.")
		if !isSection {
			return problem{0, message}
		}
		return problem{r.doc.sections[section], output.Escape(section) + ": " + message}
	}
	field := strings.TrimPrefix(strings.TrimPrefix(path, at), ".")
	if field == "" {
		return problem{e.line, e.title() + ": " + message}
	}
	if field == "headers" || strings.HasPrefix(field, "headers.") {
		field = headersFile
	}
	return problem{e.lineOf(field), output.Escape(field) + ": " + message}
}
