package config

import (
	"regexp"
	"slices"
	"strings"
)

const envPrefix = "KEYHOOK_"

// EnvFile is the name in the environment of the path that --config takes.
const EnvFile = envPrefix + "CONFIG"

// EnvWebhookSecret is the name in the environment of a subscription's signing secret, for the commands that verify.
const EnvWebhookSecret = envPrefix + "WEBHOOK_SECRET"

// otherEnv are the names that belong to other parts: the commands that are clients or receivers, and the tests.
var otherEnv = []string{EnvFile, EnvWebhookSecret, envPrefix + "URL", envPrefix + "TOKEN", envPrefix + "TEST_REQUIRE"}

func envName(name string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

// serviceLink is what Kubernetes puts into the environment of every pod for a Service whose name begins with keyhook.
var serviceLink = regexp.MustCompile(`^KEYHOOK_(.*_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// strayEnvironment finds the names with our prefix that nothing reads: a mistyped setting must not pass for a set one.
func strayEnvironment(environ []string) Problems {
	known := slices.Clone(otherEnv)
	for _, s := range Settings() {
		known = append(known, s.Env)
	}
	var found Problems
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) {
			continue
		}
		message := "is no setting" + didYouMean(name, envPrefix, known) + "; unset it"
		if serviceLink.MatchString(name) {
			message = "is no setting; Kubernetes sets it for a Service of that name: put enableServiceLinks: false into the pod's spec"
		}
		found = append(found, Problem{Source: name, Message: message})
	}
	slices.SortFunc(found, func(a, b Problem) int { return strings.Compare(a.Source, b.Source) })
	return found
}
