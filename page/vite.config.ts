import { readFileSync } from 'node:fs';
import { defineConfig } from 'vite';

const licence = readFileSync(new URL('node_modules/preact/LICENSE', import.meta.url), 'utf8').trim();

// Names without hashes, so that the crate can name the files; relative addresses, so that a proxy may put a path before
// them; nothing inline, so that the content security policy can forbid it.
export default defineConfig({
  base: './',
  publicDir: 'static',
  resolve: { preserveSymlinks: true },
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'inline' },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    rollupOptions: {
      output: {
        entryFileNames: 'app.js',
        assetFileNames: 'app[extname]',
        banner: `/*! This file contains Preact:\n\n${licence}\n*/`,
        inlineDynamicImports: true,
      },
    },
  },
});
