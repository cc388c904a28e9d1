import { defineConfig } from "vite";

export default defineConfig({
  // The server answers `/assets/…` with the files of this build and reads from the manifest which ones a page needs.
  base: "/",
  build: {
    outDir: "dist",
    assetsDir: "assets",
    manifest: "manifest.json",
    // The policy of the pages allows no data: addresses.
    assetsInlineLimit: 0,
    modulePreload: false,
    target: "es2022",
    rollupOptions: { input: { terminal: "src/terminal.ts" } },
  },
});
