package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/keyhook/keyhook/server/cli/output"
	"github.com/keyhook/keyhook/server/config"
	"github.com/keyhook/keyhook/storage"
	"github.com/keyhook/keyhook/storage/backup"
	"github.com/keyhook/keyhook/storage/disk"
)

func newBackup() *cobra.Command {
	var force, asJSON bool
	var keep int
	cmd := &cobra.Command{
		Use:   "backup [FILE]",
		Short: "Copy the database, beside a running server or without one",
		Long: `Copy the database as it is at one moment, check the copy, and name it only then. A server may run and
write meanwhile; it is not asked, and does not wait.

FILE is the copy, or a directory that gets one with a dated name; without it, that is the directory
"backups" beside the database. With --keep, older dated copies are removed. Beside storage.path, which
is found as serve finds it, no setting matters.

The encryption key is not in the copy. Keep it apart: who has both can read the signing secrets, and
who has only the copy cannot restore them.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(cmd.Flags())
			if err != nil {
				return err
			}
			o := storage.BackupOptions{Path: c.Storage.Path, Replace: force, Keep: keep}
			if len(args) == 1 {
				o.To = args[0]
			}
			report, err := storage.Backup(UntilSignal(cmd.Context()), o)
			if err != nil {
				return err
			}
			if asJSON {
				return output.WriteJSON(cmd.OutOrStdout(), newBackupReport(report))
			}
			return tellBackup(cmd.OutOrStdout(), report, keyPlace(c))
		},
	}
	config.Flags(cmd.Flags())
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it is there")
	cmd.Flags().IntVar(&keep, "keep", 0, "leave so many dated copies in the directory, this one included (0: all)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "as a JSON object")
	return cmd
}

// backupReport is a report for programs.
type backupReport struct {
	File            string   `json:"file"`
	Bytes           int64    `json:"bytes"`
	SHA256          string   `json:"sha256"`
	DurationMS      int64    `json:"duration_ms"`
	EncryptionKeyID string   `json:"encryption_key_id"`
	CreatedAt       string   `json:"created_at"`
	Events          int64    `json:"events"`
	Deliveries      int64    `json:"deliveries"`
	Pending         int64    `json:"pending_deliveries"`
	Removed         []string `json:"removed"`
	Warning         *string  `json:"warning"`
}

func newBackupReport(r backup.Report) backupReport {
	report := backupReport{
		File: r.File, Bytes: r.Bytes, SHA256: r.SHA256, DurationMS: r.Took.Milliseconds(), EncryptionKeyID: r.KeyID,
		CreatedAt: time.UnixMilli(r.CreatedAt).UTC().Format("2006-01-02T15:04:05.000Z"),
		Events:    r.Events, Deliveries: r.Deliveries, Pending: r.Pending, Removed: append([]string{}, r.Removed...),
	}
	if r.Warning != "" {
		report.Warning = &r.Warning
	}
	return report
}

// tellBackup is a report for people. key says where the encryption key is.
func tellBackup(out io.Writer, r backup.Report, key string) error {
	t := output.Table{}
	t.Add("copied to", r.File)
	t.Add("size", fmt.Sprintf("%d bytes", r.Bytes))
	t.Add("sha256", r.SHA256)
	t.Add("holds", contents(r.Contents))
	t.Add("took", r.Took.Round(time.Millisecond).String())
	if len(r.Removed) > 0 {
		t.Add("removed", strings.Join(r.Removed, ", "))
	}
	if r.Warning != "" {
		t.Add("warning", r.Warning)
	}
	t.Add("key", fmt.Sprintf("%s, which is NOT in the copy: keep %s apart from it", r.KeyID, key))
	return t.Write(out)
}

// contents returns what a database holds.
func contents(c backup.Contents) string {
	return fmt.Sprintf("%s, %s, %d of them pending", output.Count(c.Events, "event", "events"), output.Count(c.Deliveries, "delivery", "deliveries"), c.Pending)
}

// keyPlace says where the encryption key is that the settings lead to.
func keyPlace(c config.Config) string {
	if !c.Encryption.Key.IsZero() {
		return "the setting encryption.key"
	}
	return filepath.Base(c.Storage.Path) + disk.Key
}
