// Package docs holds berth's pages, so that an installed berth can show them
// (berth help TOPIC). It only embeds the files; internal/cli/manual reads them.
// The studies are left out: they are for people who work on berth.
package docs

import "embed"

// Pages are the pages for users, by their path in this directory.
//
//go:embed tutorial.md howto/*.md reference/*.md explanation/*.md
var Pages embed.FS
