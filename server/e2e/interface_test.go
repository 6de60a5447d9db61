package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keyhook/keyhook/server"
	"github.com/keyhook/keyhook/server/cli"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/server/metrics"
)

// interfaceFile lists what users build on, one thing in each line. A change of a thing is a line less and a line more.
const interfaceFile = "testdata/interface.list"

var update = flag.Bool("update", false, "add what is new to "+interfaceFile+", and a golden file of a new schema")

// TestInterface compares the operations, the settings, the commands, the exit codes and the metrics with the list that a version has
// promised. An addition needs -update. Nothing may go, and no request may need more than before: whoever must break a promise deletes
// its line by hand, and says so in changes.md.
func TestInterface(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(interfaceFile)
	if err != nil {
		t.Fatal(err)
	}
	now := slices.Concat(described(t), settings(t), commands(t), exitCodes(t), metricNames(t))
	slices.Sort(now)
	now = slices.Compact(now)
	breaks, others := compareInterfaces(strings.Split(strings.TrimSpace(string(text)), "\n"), now)
	for _, broken := range breaks {
		t.Errorf("%s\nThis breaks users. If it must be, delete the line in %s, or add it, by hand, and write it into changes.md.", broken, interfaceFile)
	}
	if *update && len(breaks) == 0 {
		if err := os.WriteFile(interfaceFile, []byte(strings.Join(now, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, other := range others {
		t.Errorf("%s\nRun: go test ./server/e2e -run TestInterface -update", other)
	}
}

// compareInterfaces returns the changes that break users, and the others. A line with " needs " is a demand on a request: a new one
// breaks users, unless the request is new too.
func compareInterfaces(before, after []string) (breaks, others []string) {
	isDemand := func(line string) bool { return strings.Contains(line, " needs ") }
	subjects := map[string]bool{}
	for _, line := range before {
		subject, _, _ := strings.Cut(line, ": ")
		subjects[subject] = true
		switch _, found := slices.BinarySearch(after, line); {
		case !found && isDemand(line):
			others = append(others, "no longer needed: "+line)
		case !found:
			breaks = append(breaks, "removed: "+line)
		}
	}
	for _, line := range after {
		subject, _, _ := strings.Cut(line, ": ")
		switch {
		case slices.Contains(before, line):
		case isDemand(line) && subjects[subject]:
			breaks = append(breaks, "newly required: "+line)
		default:
			others = append(others, "added: "+line)
		}
	}
	return breaks, others
}

func TestInterfacesAreCompared(t *testing.T) {
	t.Parallel()
	before := []string{"operation GET /a/: returns 200 A", "schema A: field x string", "schema A: needs x", "setting a.b: default 1"}
	for change, want := range map[string]struct {
		after          []string
		breaks, others string
	}{
		"nothing":         {before, "", ""},
		"a field less":    {[]string{before[0], before[2], before[3]}, "removed: schema A: field x string", ""},
		"another type":    {[]string{before[0], "schema A: field x integer", before[2], before[3]}, "removed: schema A: field x string", "added: schema A: field x integer"},
		"a demand less":   {[]string{before[0], before[1], before[3]}, "", "no longer needed: schema A: needs x"},
		"a demand more":   {[]string{before[0], before[1], before[2], "schema A: needs y", before[3]}, "newly required: schema A: needs y", ""},
		"a new request":   {append(slices.Clone(before[:3]), "schema B: needs y", before[3]), "", "added: schema B: needs y"},
		"another default": {append(slices.Clone(before[:3]), "setting a.b: default 2"), "removed: setting a.b: default 1", "added: setting a.b: default 2"},
	} {
		breaks, others := compareInterfaces(before, want.after)
		if strings.Join(breaks, "\n") != want.breaks || strings.Join(others, "\n") != want.others {
			t.Errorf("%s: breaks %q, others %q", change, breaks, others)
		}
	}
}

// description is the served description of the API.
type description struct {
	lines    []string
	requests map[string]bool // schemas that requests have
	schemas  map[string]any
}

func (d *description) add(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

// described returns the lines of the API.
func described(t *testing.T) []string {
	t.Helper()
	text, err := server.Description()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths      map[string]map[string]any
		Components struct {
			Schemas, Parameters, Responses map[string]any
			Problems                       map[string]map[string][]string `json:"x-problems"`
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	d := &description{requests: map[string]bool{}, schemas: doc.Components.Schemas}
	for path, item := range doc.Paths {
		for method, node := range item {
			operation, _ := node.(map[string]any)
			if operation["operationId"] == nil {
				continue
			}
			name := "operation " + strings.ToUpper(method) + " " + path
			d.add("%s: is called %s", name, operation["operationId"])
			shared, _ := item["parameters"].([]any)
			own, _ := operation["parameters"].([]any)
			d.parameters(name, doc.Components.Parameters, slices.Concat(shared, own))
			if body, has := operation["requestBody"].(map[string]any); has {
				for _, content := range body["content"].(map[string]any) {
					schema := content.(map[string]any)["schema"]
					d.add("%s: takes %s", name, typeOf(schema))
					d.request(schema)
				}
			}
			for status, response := range operation["responses"].(map[string]any) {
				of := response.(map[string]any)
				if at, _ := of["$ref"].(string); at != "" {
					of = doc.Components.Responses[last(at)].(map[string]any)
				}
				content, _ := of["content"].(map[string]any)
				d.add("%s: returns %s", name, status)
				for mediaType, about := range content {
					d.add("%s: returns %s %s %s", name, status, mediaType, typeOf(about.(map[string]any)["schema"]))
				}
			}
			problems, _ := operation["x-problems"].(map[string]any)
			for status, codes := range problems {
				for _, code := range codes.([]any) {
					d.add("%s: problem %s %s", name, status, code)
				}
			}
		}
	}
	for set, statuses := range doc.Components.Problems {
		for status, codes := range statuses {
			for _, code := range codes {
				d.add("problems %s: %s %s", set, status, code)
			}
		}
	}
	for name, schema := range d.schemas {
		d.fields("schema "+name, "", schema.(map[string]any), d.requests[name])
	}
	return d.lines
}

// parameters adds the parameters of an operation.
func (d *description) parameters(name string, known map[string]any, list []any) {
	for _, p := range list {
		of := p.(map[string]any)
		if at, _ := of["$ref"].(string); at != "" {
			of = known[last(at)].(map[string]any)
		}
		schema, _ := of["schema"].(map[string]any)
		d.add("%s: parameter %s %s %s", name, of["in"], of["name"], typeOf(of["schema"]))
		if of["required"] == true {
			d.add("%s: needs parameter %s %s", name, of["in"], of["name"])
		}
		d.values(name+": parameter "+fmt.Sprint(of["name"]), schema)
	}
}

// request notes the schemas below a schema that a request has.
func (d *description) request(node any) {
	switch node := node.(type) {
	case []any:
		for _, each := range node {
			d.request(each)
		}
	case map[string]any:
		if at, _ := node["$ref"].(string); at != "" && !d.requests[last(at)] {
			d.requests[last(at)] = true
			d.request(d.schemas[last(at)])
		}
		for _, each := range node {
			d.request(each)
		}
	}
}

// fields adds the fields of an object and the values of a text, down to schemas with a name of their own.
func (d *description) fields(name, at string, schema map[string]any, isRequest bool) {
	if at == "" {
		d.add("%s: is %s", name, typeOf(schema))
	}
	d.values(name+": "+strings.TrimSuffix("field "+at, "field "), schema)
	required, _ := schema["required"].([]any)
	for _, field := range required {
		word := "always has"
		if isRequest {
			word = "needs"
		}
		d.add("%s: %s %s%s", name, word, at, field)
	}
	properties, _ := schema["properties"].(map[string]any)
	for field, of := range properties {
		d.add("%s: field %s%s %s", name, at, field, typeOf(of))
		d.fields(name, at+field+".", of.(map[string]any), isRequest)
	}
	if items, has := schema["items"].(map[string]any); has {
		d.fields(name, at+"items.", items, isRequest)
	}
	for _, part := range []string{"allOf", "oneOf", "anyOf"} {
		parts, _ := schema[part].([]any)
		for _, each := range parts {
			d.fields(name, at, each.(map[string]any), isRequest)
		}
	}
}

// values adds the values of a text that has only some.
func (d *description) values(name string, schema map[string]any) {
	values, _ := schema["enum"].([]any)
	for _, value := range values {
		d.add("%s value %v", strings.TrimSuffix(name, "."), value)
	}
}

// typeOf names the type of a schema.
func typeOf(node any) string {
	schema, _ := node.(map[string]any)
	if at, _ := schema["$ref"].(string); at != "" {
		return last(at)
	}
	if list, isList := schema["type"].([]any); isList {
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", "|"), "[]")
	}
	for _, part := range []string{"oneOf", "anyOf", "allOf"} {
		var names []string
		parts, _ := schema[part].([]any)
		for _, each := range parts {
			names = append(names, typeOf(each))
		}
		if names != nil {
			return strings.Join(names, map[bool]string{true: "&", false: "|"}[part == "allOf"])
		}
	}
	if schema["type"] == "array" {
		return "list of " + typeOf(schema["items"])
	}
	if schema["type"] == nil {
		return "any"
	}
	return fmt.Sprint(schema["type"])
}

// last returns the name at the end of a reference.
func last(reference string) string { return reference[strings.LastIndexByte(reference, '/')+1:] }

// settings returns the lines of the settings.
func settings(t *testing.T) (lines []string) {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Flags(flags)
	list, err := config.Sources(flags)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		lines = append(lines, fmt.Sprintf("setting %s: %s --%s", s.Name, s.Env, s.Flag), fmt.Sprintf("setting %s: default %s", s.Name, s.Default))
	}
	return lines
}

// commands returns the lines of the commands and their own flags. Flags with a dot are settings.
func commands(t *testing.T) (lines []string) {
	t.Helper()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		lines = append(lines, fmt.Sprintf("command %s: %s", cmd.CommandPath(), cmd.Use))
		flags := map[string]*pflag.Flag{}
		for _, set := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
			set.VisitAll(func(f *pflag.Flag) { flags[f.Name] = f })
		}
		for name, f := range flags {
			if !strings.Contains(name, ".") {
				lines = append(lines, fmt.Sprintf("command %s: --%s %s", cmd.CommandPath(), name, f.Value.Type()))
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(cli.New(cli.Options{}))
	_, help := finish(t, keyhook(t, t.TempDir(), "serve", "--help"))
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z_]+)(?: |$)`).FindAllStringSubmatch(help, -1) {
		lines = append(lines, "command keyhook serve: --"+m[1])
	}
	return lines
}

// exitCodes returns the lines of the exit codes.
func exitCodes(t *testing.T) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../cli/cli.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^\t(Exit\w+) += (\d+)`).FindAllStringSubmatch(string(text), -1) {
		lines = append(lines, fmt.Sprintf("exit code %s: %s", m[1], m[2]))
	}
	return lines
}

// metricNames returns the lines of the metrics with their labels, except those of the Go runtime and of the process. A scrape has no
// counter that nothing has counted, and no description has the gauges, which a scrape may leave out. So it takes both.
func metricNames(t *testing.T) []string {
	t.Helper()
	all := make(chan *prometheus.Desc, 1000)
	metrics.New().Describe(all)
	close(all)
	labels := map[string]string{}
	form := regexp.MustCompile(`fqName: "(keyhook_\w+)".*variableLabels: \{([^}]*)\}`)
	for about := range all {
		if m := form.FindStringSubmatch(about.String()); m != nil {
			labels[m[1]] = m[2]
		}
	}
	_, scrape := get(t, start(t, t.TempDir()).url+"/metrics")
	name := regexp.MustCompile(`(\w+)="[^"]*"`)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (keyhook_\w+) gauge\n\w+(.*) `).FindAllStringSubmatch(scrape, -1) {
		if _, known := labels[m[1]]; !known {
			labels[m[1]] = strings.Trim(name.ReplaceAllString(m[2], "$1"), "{}")
		}
	}
	var lines []string
	for name, of := range labels {
		lines = append(lines, fmt.Sprintf("metric %s: {%s}", name, of))
	}
	return lines
}
