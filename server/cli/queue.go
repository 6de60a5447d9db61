package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/config"
)

func newQueue() *cobra.Command {
	group := &cobra.Command{
		Use:   "queue",
		Short: "Look at all that waits to be sent, and hold, release or discard it",
	}
	group.PersistentFlags().String("url", "", "the `address` of the server (or KEYHOOK_URL; else made from server.listen)")
	group.PersistentFlags().String("token", "", "an operator's access `token` (or KEYHOOK_TOKEN)")
	group.PersistentFlags().Bool("json", false, "print the API's JSON")
	config.Flags(group.PersistentFlags())
	group.AddCommand(newQueueShow(), newQueueHold(), newQueueRelease(), newQueueDiscard())
	return group
}

// queueState is what the API says of the queue.
type queueState struct {
	Held          bool    `json:"held"`
	HeldSince     *string `json:"held_since"`
	Reason        *string `json:"reason"`
	Deliveries    int64   `json:"pending_deliveries"`
	Subscriptions int64   `json:"pending_subscriptions"`
	Pending       []struct {
		SubscriptionID string `json:"subscription_id"`
		OrganizationID string `json:"organization_id"`
		URLHost        string `json:"url_host"`
		Pending        int64  `json:"pending"`
		OldestDue      string `json:"oldest_due"`
	} `json:"pending"`
	Released *int64 `json:"released,omitempty"`
	Dropped  *int64 `json:"dropped,omitempty"`
}

func newQueueShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show whether the queue is held, and what waits for whom",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askQueue(cmd, http.MethodGet, "", nil)
		},
	}
}

func newQueueHold() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Send nothing more, to anybody, until the queue is released",
		Long: `Send nothing more, to anybody, until the queue is released. What is on the wire ends; events are still
taken, and wait. The hold outlives restarts.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body := object{}
			if reason != "" {
				body["reason"] = reason
			}
			return askQueue(cmd, http.MethodPost, "hold/", body)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for whoever looks at it later")
	return cmd
}

func newQueueRelease() *cobra.Command {
	return &cobra.Command{
		Use:   "release",
		Short: "Send all that waits, and what comes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askQueue(cmd, http.MethodPost, "release/", nil)
		},
	}
}

func newQueueDiscard() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "discard",
		Short: "Drop what was waiting when the queue was held, and send what came later",
		Long: `Drop all deliveries that were waiting when the queue was held, for every organization, and release it for
those that came later. Their events stay, and can be replayed to a subscription.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes && !agreed(cmd.InOrStdin(), cmd.ErrOrStderr(), "Drop all that was waiting when the queue was held? Type yes: ") {
				return errors.New("nothing was dropped; say yes, or give --yes")
			}
			return askQueue(cmd, http.MethodPost, "discard/", nil)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// agreed asks a question that nothing but yes answers.
func agreed(in io.Reader, out io.Writer, question string) bool {
	fmt.Fprint(out, question)
	answer, _ := bufio.NewReader(in).ReadString('\n') // the end of the input is an answer too
	return strings.TrimSpace(answer) == "yes"
}

// askQueue asks the server and shows the queue as it is then.
func askQueue(cmd *cobra.Command, method, path string, body any) error {
	c, err := queueClient(cmd)
	if err != nil {
		return err
	}
	var q queueState
	if err := c.call(cmd.Context(), method, "/api/v1/queue/"+path, body, http.StatusOK, &q); err != nil {
		return err
	}
	if asJSON, _ := cmd.Flags().GetBool("json"); asJSON {
		return writeJSON(cmd.OutOrStdout(), q)
	}
	return q.tell(cmd.OutOrStdout())
}

// queueClient is for the server that the flags or the environment name.
func queueClient(cmd *cobra.Command) (client, error) {
	url, _ := cmd.Flags().GetString("url")
	token, _ := cmd.Flags().GetString("token")
	if url == "" {
		url = os.Getenv("KEYHOOK_URL")
	}
	if token == "" {
		token = os.Getenv("KEYHOOK_TOKEN")
	}
	if url == "" {
		c, err := config.Load(cmd.Flags())
		if err != nil {
			return client{}, err
		}
		url = c.Server.URL(c.Server.Listen)
	}
	if token == "" {
		return client{}, errors.New("an operator's access token is needed: give --token, or set KEYHOOK_TOKEN")
	}
	return client{base: strings.TrimSuffix(url, "/"), authorization: "Bearer " + token}, nil
}

// tell shows the queue to people.
func (q queueState) tell(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	switch {
	case q.Dropped != nil:
		fmt.Fprintf(w, "dropped %s; the queue is open\n", counted(*q.Dropped, "delivery", "deliveries"))
	case q.Released != nil:
		fmt.Fprintf(w, "released %s; the queue is open\n", counted(*q.Released, "delivery", "deliveries"))
	case q.Held:
		fmt.Fprintf(w, "the queue is HELD since %s", *q.HeldSince)
		if q.Reason != nil {
			fmt.Fprintf(w, ": %s", *q.Reason)
		}
		fmt.Fprint(w, "\n")
	default:
		fmt.Fprint(w, "the queue is open: what is due is sent\n")
	}
	fmt.Fprintf(w, "%s for %s\n", counted(q.Deliveries, "delivery waits", "deliveries wait"), counted(q.Subscriptions, "subscription", "subscriptions"))
	if len(q.Pending) > 0 {
		fmt.Fprint(w, "\nPENDING\tSUBSCRIPTION\tHOST\tORGANIZATION\tOLDEST DUE\n")
	}
	for _, p := range q.Pending {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", p.Pending, p.SubscriptionID, p.URLHost, p.OrganizationID, p.OldestDue)
	}
	if more := q.Subscriptions - int64(len(q.Pending)); more > 0 {
		fmt.Fprintf(w, "… and %s with less\n", counted(more, "subscription", "subscriptions"))
	}
	return w.Flush()
}
