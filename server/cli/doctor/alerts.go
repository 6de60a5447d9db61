package doctor

import (
	"strings"

	"github.com/keyhook/keyhook/dispatch/alert"
	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
)

// checkAlerts checks alerts.urls. It sends nothing.
func (r *report) checkAlerts(c config.Alerts) {
	const check = "alerts"
	channels, err := alert.Channels(c.URLs)
	if err != nil {
		r.failure(check, err)
		return
	}
	if len(channels) == 0 && r.serverHasAlerts {
		r.ok(check, "The server has alerts.urls, which it tells nobody. Test them with: keyhook alert test, with the settings of the server")
		return
	}
	if len(channels) == 0 {
		r.ok(check, "Doctor found no alerts.urls. Without them, Keyhook tells nobody when a subscription is disabled or the disk is nearly full.")
		return
	}
	var names []string
	for _, channel := range channels {
		names = append(names, channel.String())
	}
	r.ok(check, "Keyhook tells %s: %s. Test them with: keyhook alert test", output.Count(len(names), "channel", "channels"), strings.Join(names, ", "))
}
