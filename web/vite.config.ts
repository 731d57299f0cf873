import { defineConfig } from "vite";

// The bundle is committed, so that building berth needs no Node: the same
// sources must give the same bytes.
export default defineConfig({
  base: "/",
  build: {
    outDir: "../internal/api/web/dist",
    emptyOutDir: true,
    assetsInlineLimit: 0, // the content security policy allows no data: addresses
    modulePreload: { polyfill: false },
    sourcemap: false,
    target: "es2022",
  },
});
