package storage

import (
	"cmp"
	"context"
	"slices"

	"github.com/keyhook/keyhook/storage/access"
)

// OrganizationPage lists organizations with their figures, in the order of the filter. If next is not 0, a search ended early, and next is
// the row id at which the next page begins. An order knows no organization that is younger than the figures.
func (s *Store) OrganizationPage(ctx context.Context, f access.OrganizationFilter) (page []access.ListedOrganization, next int64, err error) {
	figures, err := s.OrganizationFigures(ctx)
	if err != nil {
		return nil, 0, err
	}
	var found []access.Organization
	if f.Sort == "" {
		found, next, err = s.Directory.OrganizationPage(ctx, f.Beginning, f.Before, f.Limit)
	} else {
		found, err = s.OrganizationsInOrder(ctx, inOrder(figures, f), f.Beginning, f.Limit)
	}
	for _, o := range found {
		page = append(page, access.ListedOrganization{Organization: o, OrganizationFigures: figures[o.RowID]})
	}
	return page, next, err
}

// inOrder returns the row ids of the organizations that may be on a page. Without a search, those are as many as the page has.
func inOrder(figures map[int64]access.OrganizationFigures, f access.OrganizationFilter) []int64 {
	rows := make([]int64, 0, len(figures))
	for row, has := range figures {
		if f.Before == 0 || cmp.Or(cmp.Compare(f.Sort.Of(has), f.Figure), cmp.Compare(row, f.Before)) < 0 {
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b int64) int {
		return cmp.Or(cmp.Compare(f.Sort.Of(figures[b]), f.Sort.Of(figures[a])), cmp.Compare(b, a))
	})
	if f.Beginning == "" {
		rows = rows[:min(len(rows), f.Limit)]
	}
	return rows
}
