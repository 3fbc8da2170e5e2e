// The pictures of the page in docs/pictures, light and dark.

import { mkdirSync, statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { story } from './fleets.mjs';

const folder = new URL('../../docs/pictures/', import.meta.url);
/** What a picture may take, in bytes. */
const MOST = 200_000;

mkdirSync(folder, { recursive: true });
const server = story();
const url = await server.listen();
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
});
for (const colorScheme of /** @type {const} */ (['light', 'dark'])) {
  const page = await browser.newPage({ viewport: { width: 1240, height: 664 }, deviceScaleFactor: 1.5, colorScheme });
  await page.goto(`${url}#/?group=region&cell=platform/kyverno@euc-6`);
  await page.locator('.inspector', { hasText: 'HealthCheckFailed' }).waitFor();
  const path = fileURLToPath(new URL(`page-${colorScheme}.png`, folder));
  await page.screenshot({ path });
  const { size } = statSync(path);
  if (size > MOST) throw new Error(`${path} takes ${size} bytes, and may take ${MOST}`);
  console.log(`${path}: ${size} bytes`);
  await page.close();
}
await browser.close();
await server.close();
