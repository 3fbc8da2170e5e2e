import { defineConfig } from 'vitest/config';

export default defineConfig({
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  // One file after the other: frames are measured.
  test: { testTimeout: 60_000, hookTimeout: 60_000, fileParallelism: false, expect: { poll: { timeout: 10_000 } } },
});
