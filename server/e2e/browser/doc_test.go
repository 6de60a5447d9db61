// Package browser tests the pages of Keyhook in headless Chromium, against the built program and a receiver that fails on
// command. It imports none of our packages.
//
// A test starts a server, fills it, opens a page and acts as a person does: it finds elements by role and name, and fields by
// label. A test fails on any error in the console of the browser, any violation of the content security policy, any request
// to another host, and any failed request that the test did not announce. TestPages looks at each page: axe-core in light and
// dark, no horizontal scroll on a phone, screenshots.
//
//	go test ./server/e2e/browser
//	KEYHOOK_TEST_SCREENSHOTS=/tmp/pages go test ./server/e2e/browser -run TestPages
//
// The tests need Debian's packages chromium-headless-shell (or chromium) and npm. The first run fetches axe-core from npm and keeps it
// in the cache directory of the user; KEYHOOK_TEST_AXE names another copy. KEYHOOK_BINARY names another build of the program. With the
// race detector the package runs nothing: the tests of server/e2e run the program under it.
package browser
