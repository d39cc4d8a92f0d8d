import { defineConfig } from "vite";

// One script, one style sheet, no inline code: the server's content security policy allows nothing else,
// and `glidepath deck export` can put both into a single file.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/glidepath/apps/server/static",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    sourcemap: false,
    reportCompressedSize: true,
    rollupOptions: {
      output: {
        entryFileNames: "assets/deck-[hash].js",
        assetFileNames: "assets/deck-[hash][extname]",
      },
    },
  },
  server: { proxy: { "/api": { target: process.env["GLIDEPATH_SERVER"] ?? "http://127.0.0.1:7447", changeOrigin: true } } },
});
