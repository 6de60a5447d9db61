package docs

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// reference is what the pages of the API show of its description in OpenAPI.
type reference struct {
	Info     struct{ Description string }
	Tags     []*group
	Security []map[string]any // the credentials that operations take
	Paths    map[string]struct {
		Parameters                    []parameter // of each method
		Get, Post, Put, Patch, Delete *operation
	}
	Components struct {
		Schemas    map[string]*schema
		Parameters map[string]parameter
		Responses  map[string]content
		Problems   map[string]map[string][]string `json:"x-problems"` // set → status → codes
	}
	url string // where callers reach the server
}

type group struct {
	Name, Description, Anchor string
	Operations                []*operation
}

// operation is one method of one path. The server adds what most operations have.
type operation struct {
	OperationID, Summary, Description string
	Permission                        string `json:"x-permission"` // "a b" needs both, "a|b" one of them
	Tags                              []string
	Parameters                        []parameter
	RequestBody                       content
	Responses                         map[string]content
	Problems                          map[string][]string `json:"x-problems"` // status → codes; "sets" → sets of the components
	Security                          *[]map[string]any   // the credentials that it takes

	Method, Path, Curl string
	Inputs, Body       []field
}

type parameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                *schema
	Example               any
}

// content is the body of a request, or a response.
type content struct {
	Ref         string `json:"$ref"`
	Description string
	Content     map[string]struct{ Schema *schema }
	Objects     map[string]string // media type → the name of the object; empty: the body is none
}

type schema struct {
	Ref                                                        string `json:"$ref"`
	Type, Const, Default                                       any
	Minimum, Maximum, MinLength, MaxLength, MinItems, MaxItems *json.Number
	Format, Pattern, Description                               string
	Enum, Examples                                             []any
	Required                                                   []string
	Properties                                                 map[string]*schema
	Items                                                      *schema
	AllOf, OneOf                                               []*schema
}

// field is a parameter, or a field of a JSON object.
type field struct {
	Name, In, Type, Object, Bounds, Description string
	Required                                    bool
}

// readReference reads a description in JSON. A curl line of the reference goes to a server at url.
func readReference(text []byte, url string) (*reference, error) {
	r := &reference{url: url}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, err
	}
	groups := map[string]*group{}
	for _, g := range r.Tags {
		g.Anchor, groups[g.Name] = "tag-"+strings.ToLower(strings.ReplaceAll(g.Name, " ", "-")), g
	}
	for _, path := range slices.Sorted(maps.Keys(r.Paths)) {
		p := r.Paths[path]
		for i, op := range []*operation{p.Get, p.Post, p.Put, p.Patch, p.Delete} {
			if op != nil {
				op.Method, op.Path = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}[i], path
				op.Parameters = slices.Concat(p.Parameters, op.Parameters)
				r.complete(op)
				groups[op.Tags[0]].Operations = append(groups[op.Tags[0]].Operations, op)
			}
		}
	}
	return r, nil
}

// complete follows the references of an operation, and describes its fields.
func (r *reference) complete(op *operation) {
	op.Parameters = slices.DeleteFunc(op.Parameters, func(p parameter) bool { return lastOf(p.Ref) == "ActFor" }) // of all; see Credentials
	for i, p := range op.Parameters {
		if p.Ref != "" {
			p = r.Components.Parameters[lastOf(p.Ref)]
			op.Parameters[i] = p
		}
		f := r.field(p.Name, p.Schema)
		f.In, f.Required, f.Description = p.In, p.Required, p.Description
		op.Inputs = append(op.Inputs, f)
	}
	op.Body = r.Fields(op.RequestBody.Content["application/json"].Schema)
	delete(op.Responses, "default")
	for status, response := range op.Responses {
		if response.Ref != "" {
			response = r.Components.Responses[lastOf(response.Ref)]
		}
		response.Objects = map[string]string{}
		for mediaType, body := range response.Content {
			_, response.Objects[mediaType] = r.typeOf(body.Schema)
		}
		op.Responses[status] = response
	}
	for _, set := range op.Problems["sets"] {
		for status, codes := range r.Components.Problems[set] {
			op.Problems[status] = slices.Compact(slices.Sorted(slices.Values(append(slices.Clip(codes), op.Problems[status]...))))
		}
	}
	delete(op.Problems, "sets")
	op.Curl = r.curl(op)
}

// addReference adds the page of the reference, and lets the search find its operations.
func (s *Site) addReference(r *reference) error {
	v := view{template: "reference", Name: referenceName, Title: "API reference", API: r}
	for _, g := range r.Tags {
		v.Sections = append(v.Sections, link{g.Anchor, g.Name})
		for _, op := range g.Operations {
			s.sections = append(s.sections, section{
				Page: referenceName, PageTitle: v.Title, Anchor: op.OperationID, Title: op.Summary,
				text: op.Method + " " + op.Path + " " + strings.NewReplacer("`", "", "\n", " ").Replace(op.Description),
			})
		}
	}
	v.Sections = append(v.Sections, link{"refusals", "Refusals"})
	return errors.Join(s.add(v), s.add(view{template: "objects", Name: objectsName, Title: "API objects", API: r}))
}

// lastOf returns the name at the end of a reference.
func lastOf(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// follow returns the schema to which references lead, and the name of the last one. The description of the first one counts.
func (r *reference) follow(s *schema) (*schema, string) {
	name, text := "", ""
	for s != nil && s.Ref != "" {
		text = cmp.Or(text, s.Description)
		name = lastOf(s.Ref)
		s = r.Components.Schemas[name]
	}
	if text != "" {
		other := *s
		other.Description, s = text, &other
	}
	return s, name
}

// Fields describes the fields of a JSON object, the required ones first. Those of an object without a name of its own follow it, as
// "outer.inner".
func (r *reference) Fields(s *schema) (list []field) {
	s, _ = r.follow(s)
	if s == nil {
		return nil
	}
	for _, part := range s.AllOf {
		list = append(list, r.Fields(part)...)
	}
	order := func(name string) uint { return uint(slices.Index(s.Required, name)) } // -1 becomes the last
	for _, name := range slices.SortedFunc(maps.Keys(s.Properties), func(a, b string) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), strings.Compare(a, b))
	}) {
		f := r.field(name, s.Properties[name])
		f.Required = slices.Contains(s.Required, name)
		list = append(list, f)
		if f.Type == "object" && f.Object == "" {
			for _, inner := range r.Fields(s.Properties[name]) {
				inner.Name = name + "." + inner.Name
				list = append(list, inner)
			}
		}
	}
	return list
}

func (r *reference) field(name string, s *schema) field {
	f := field{Name: name, Bounds: r.bounds(s)}
	f.Type, f.Object = r.typeOf(s)
	followed, _ := r.follow(s)
	f.Description = followed.Description
	return f
}

// typeOf returns the type of a value in words, and the name of the object that the value has.
func (r *reference) typeOf(s *schema) (words, object string) {
	s, name := r.follow(s)
	switch {
	case s == nil:
		return "any", ""
	case s.Items != nil:
		words, object = r.typeOf(s.Items)
		return "list of " + words, object
	case len(s.Properties)+len(s.AllOf) > 0:
		return "object", name
	case len(s.OneOf) > 0:
		var alternatives []string
		for _, one := range s.OneOf {
			words, inOne := r.typeOf(one)
			alternatives, object = append(alternatives, words), object+inOne
		}
		return strings.Join(alternatives, " or "), object
	}
	if types, isList := s.Type.([]any); isList {
		return join(types, " or "), ""
	}
	return join([]any{s.Type}, ""), ""
}

func (r *reference) bounds(s *schema) string {
	s, _ = r.follow(s)
	var all []string
	limit := func(low, high *json.Number, unit string) {
		switch {
		case low != nil && high != nil:
			all = append(all, string(*low)+" to "+string(*high)+unit)
		case high != nil:
			all = append(all, "at most "+string(*high)+unit)
		case low != nil:
			all = append(all, "at least "+string(*low)+unit)
		}
	}
	limit(s.Minimum, s.Maximum, "")
	limit(s.MinLength, s.MaxLength, " characters")
	limit(s.MinItems, s.MaxItems, " items")
	all = append(all, strings.TrimSuffix(join(s.Enum, ", "), ", null"), s.Format)
	for i, value := range []any{s.Const, s.Pattern, s.Default} {
		if value != nil && value != "" {
			all = append(all, []string{"", "matches ", "default "}[i]+join([]any{value}, ""))
		}
	}
	if s.Items != nil {
		all = append(all, r.bounds(s.Items))
	}
	return strings.Join(slices.DeleteFunc(all, func(one string) bool { return one == "" }), "; ")
}

// join joins values: text without quotes, all else as JSON.
func join(values []any, separator string) string {
	var list []string
	for _, value := range values {
		text, isText := value.(string)
		if !isText {
			content, _ := json.Marshal(value) // a value of JSON
			text = string(content)
		}
		list = append(list, text)
	}
	return strings.Join(list, separator)
}

// curl returns a command that makes the request: with the examples of the path, of what the query must have, and of the body.
func (r *reference) curl(op *operation) string {
	path, query := op.Path, url.Values{}
	for _, p := range op.Parameters {
		switch example := join([]any{p.Example}, ""); {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(example))
		case p.In == "query" && p.Required:
			query.Set(p.Name, example)
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	line := "curl " + quote(r.url+path)
	if op.Method != "GET" {
		line = "curl -X " + op.Method + line[4:]
	}
	const next = " \\\n  " // the command goes on in the next line
	security := cmp.Or(op.Security, &r.Security)
	for _, c := range [][2]string{
		{"accessTokenAuth", `-H "Authorization: Bearer $TOKEN"`}, {"apiKeyAuth", `-H "Authorization: ApiKey $KEY"`}, {"sessionAuth", `-b "keyhook_session=$SESSION"`},
	} {
		if slices.ContainsFunc(*security, func(taken map[string]any) bool { return taken[c[0]] != nil }) {
			line += next + c[1]
			break
		}
	}
	if body := op.RequestBody.Content["application/json"].Schema; body != nil {
		example := []any{map[string]any{}}
		if s, _ := r.follow(body); len(s.Examples) > 0 {
			example = s.Examples[:1]
		}
		line += next + "--json " + quote(join(example, ""))
	}
	return line
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
