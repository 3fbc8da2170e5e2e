// What each story of a file plays on: one browser, and for each of them a fleet of its own and where it answers.

import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest';
import { launch } from './chromium';
import { story } from './fleets.mjs';

export let browser: Browser;
export let server: ReturnType<typeof story>;
export let url: string;

beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());
beforeEach(async () => {
  server = story();
  url = await server.listen();
});
afterEach(() => server.close());
