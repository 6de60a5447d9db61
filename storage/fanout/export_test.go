package fanout

// Size returns how many subscriptions the lists by event type have together.
func (c *Cache) Size() (rows int) {
	for _, lists := range c.matching {
		for _, subscriptions := range lists {
			rows += len(subscriptions)
		}
	}
	return rows
}

// FilterBytes returns how many bytes the filters in memory have, as the cache counts them.
func (c *Cache) FilterBytes() int { return c.conditions }

// Subscriptions returns how many subscriptions are in memory.
func (c *Cache) Subscriptions() int { return len(c.subscriptions) }
