package server_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/keyhook/keyhook/server/servertest"
	"github.com/keyhook/keyhook/storage/access"
	"github.com/keyhook/keyhook/storage/storagetest"
)

// The files for the operator's own monitoring.
const (
	alertRules = "docs/monitoring/alerts.yaml"
	dashboard  = "docs/monitoring/dashboard.json"
)

// labelsOf has the names of metrics with their labels, and the values of each label.
type labelsOf map[string]map[string]map[string]bool

var (
	seriesLine  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? `)
	labelOfLine = regexp.MustCompile(`([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"`)
)

// scraped returns the metrics of a server that has answered each kind of request once.
func scraped(t *testing.T) labelsOf {
	t.Helper()
	f := build(t, measured)
	owner, _ := storagetest.Organization(t, f.Store, "acme", "growth", access.RoleOwner)
	_, key := storagetest.Key(t, f.Store, owner, access.EventsRead)
	const peer = "203.0.113.9:999"
	f.asked(peer, "GET /api/v1/whoami/", "Authorization", servertest.APIKey(key))
	f.asked(peer, "GET /api/v1/whoami/")
	found := labelsOf{"up": {"job": {"keyhook": true}}} // Prometheus itself makes this one
	for line := range strings.Lines(f.asked("127.0.0.1:1", "GET /metrics").Body.String()) {
		m := seriesLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if found[m[1]] == nil {
			found[m[1]] = map[string]map[string]bool{"instance": {}, "job": {"keyhook": true}} // Prometheus adds these
		}
		for _, label := range labelOfLine.FindAllStringSubmatch(m[2], -1) {
			if found[m[1]][label[1]] == nil {
				found[m[1]][label[1]] = map[string]bool{}
			}
			found[m[1]][label[1]][label[2]] = true
		}
	}
	return found
}

var (
	rangeOf    = regexp.MustCompile(`\[[^\]]*\]`)
	grouping   = regexp.MustCompile(`\b(?:by|without|ignoring|on)\s*\(([^)]*)\)`)
	word       = regexp.MustCompile(`\b([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\}|\()?`)
	matcher    = regexp.MustCompile(`([a-zA-Z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	operators  = []string{"and", "or", "unless", "offset", "bool"}
	labelQuery = regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`)
)

// check returns what an expression of PromQL names and the server does not have. It knows as much of PromQL as our files use.
func (l labelsOf) check(expr string) (metrics int, wrong []string) {
	expr = rangeOf.ReplaceAllString(expr, "")
	var labels []string
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	known := map[string]bool{}
	for _, m := range word.FindAllStringSubmatch(grouping.ReplaceAllString(expr, " "), -1) {
		name, behind := m[1], m[2]
		if behind == "(" || slices.Contains(operators, name) {
			continue
		}
		metrics++
		has, found := l[name]
		if !found {
			wrong = append(wrong, "there is no metric "+name)
		}
		for label := range has {
			known[label] = true
		}
		for _, m := range matcher.FindAllStringSubmatch(behind, -1) {
			label, operator, value := m[1], m[2], m[3]
			switch values, found := has[label]; {
			case !found:
				wrong = append(wrong, name+" has no label "+label)
			case (operator == "=" || operator == "!=") && !values[value]:
				wrong = append(wrong, name+" has no "+label+" "+value)
			}
		}
	}
	for _, label := range labels {
		if !known[label] {
			wrong = append(wrong, "no metric of it has the label "+label)
		}
	}
	return metrics, wrong
}

// expressions returns the values of all members with the name expr, at any depth.
func expressions(node any) (found []string) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			found = append(found, expressions(child)...)
		}
	case map[string]any:
		for name, child := range node {
			if text, ok := child.(string); ok && name == "expr" {
				found = append(found, text)
			}
			found = append(found, expressions(child)...)
		}
	}
	return found
}

// TestMonitoring compares the alert rules and the dashboard with the metrics of a server.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	has := scraped(t)
	for file, decode := range map[string]func([]byte, any) error{alertRules: yaml.Unmarshal, dashboard: json.Unmarshal} {
		t.Run("names only metrics, labels and values that exist: "+file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var content any
			if err := decode(text, &content); err != nil {
				t.Fatal(err)
			}
			found := expressions(content)
			if len(found) < 14 {
				t.Errorf("only %d expressions", len(found))
			}
			for _, expr := range found {
				metrics, wrong := has.check(expr)
				if metrics == 0 || len(wrong) > 0 {
					t.Errorf("%s\n  %s", expr, strings.Join(wrong, "\n  "))
				}
			}
		})
	}
	t.Run("offers the instances that exist in the dashboard", func(t *testing.T) {
		text, err := os.ReadFile(dashboard)
		if err != nil {
			t.Fatal(err)
		}
		var content struct {
			Templating struct{ List []struct{ Definition string } }
		}
		if err := json.Unmarshal(text, &content); err != nil {
			t.Fatal(err)
		}
		m := labelQuery.FindStringSubmatch(content.Templating.List[1].Definition)
		if m == nil || has[m[1]][m[2]] == nil {
			t.Errorf("the query of the variable is %q", content.Templating.List[1].Definition)
		}
	})
	t.Run("finds wrong names", func(t *testing.T) {
		for expr, want := range map[string]string{
			`rate(keyhook_nothing_total[5m]) > 0`:                   "there is no metric keyhook_nothing_total",
			`keyhook_subscriptions{state="failing"} > 5`:            "keyhook_subscriptions has no label state",
			`keyhook_subscriptions{status="broken"} > 5`:            "keyhook_subscriptions has no status broken",
			`sum by (class) (rate(keyhook_deliveries_pending[5m]))`: "no metric of it has the label class",
		} {
			if _, wrong := has.check(expr); !slices.Equal(wrong, []string{want}) {
				t.Errorf("%s: %q", expr, wrong)
			}
		}
	})
}

// TestAlertRules lets Prometheus check the rules, and tests them.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool := program(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", alertRules}, {"test", "rules", "testdata/alerts_test.yaml"}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
