// The page over a real aggregator, hub and Prometheus: FLEET is the program that runs them and says what it is told to.

import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isCurrent, launch, open, violations } from '../browser/chromium';

const R1 = 'main@sha1:1111111111111111111111111111111111111111';
const R2 = 'main@sha1:2222222222222222222222222222222222222222';
/** Scrape, poll and verdict, on a machine that has more to do. */
const SOON = { timeout: 60_000 };

let browser: Browser;
let fleet: ChildProcessByStdio<Writable, Readable, null>;
let lines: AsyncIterator<string>;
let url: string;

async function line(): Promise<string> {
  const { value, done } = await lines.next();
  if (done) throw new Error('the program with the servers has ended');
  return value;
}

async function tell(command: string) {
  fleet.stdin.write(command + '\n');
  expect(await line()).toBe('ok');
}

beforeAll(async () => {
  browser = await launch();
  fleet = spawn(process.env.FLEET!, [], { stdio: ['pipe', 'pipe', 'inherit'] });
  lines = createInterface({ input: fleet.stdout })[Symbol.asyncIterator]();
  url = await line();
}, 300_000);
afterAll(async () => {
  await browser.close();
  const ended = new Promise((resolve) => fleet.once('exit', resolve));
  fleet.stdin.end();
  await ended;
}, 60_000);

test('a rollout on real servers, until the hub is gone', async () => {
  const { page, close } = await open(browser, url + '#/package/default/payments');
  await isCurrent(page);
  const gate = (name: string) => page.locator('.gate', { has: page.getByRole('link', { name, exact: true }) });
  await gate('wave-1').locator('.state', { hasText: 'Open' }).waitFor(SOON);
  await gate('wave-2').locator('.state', { hasText: 'Open' }).waitFor(SOON);
  expect(await violations(page)).toEqual([]);

  await page.goto(url + '#/rollout/default/payments');
  await page.getByRole('heading', { name: 'There is no FleetRollout' }).waitFor(SOON);
  const says = (words: string) => page.locator('.verdict.large', { hasText: words }).waitFor(SOON);
  await tell(`rolls ${R1}`);
  await says('rolled out');
  await tell(`rolls ${R2}`);
  await says('wave eu (1 of 2), 2 of 2 admitted');
  const wave = page.getByRole('region', { name: 'Wave eu' });
  await wave.locator('table.rows tbody tr', { hasText: 'NotUpdated' }).nth(1).waitFor(SOON);
  expect(await violations(page)).toEqual([]);
  await tell(`failed eu-2 ${R2}`);
  await says('stalled');
  await wave.locator('table.rows tbody tr', { hasText: 'Failed' }).first().waitFor(SOON);
  await page.getByRole('region', { name: 'Other revisions' }).getByText(R1).waitFor(SOON);

  await page.goto(url + '#/package/default/payments');
  await gate('wave-1').locator('.state', { hasText: /Waiting|Stalled/ }).waitFor(SOON);
  await gate('wave-2').locator('.state', { hasText: 'Waiting' }).waitFor(SOON);
  await page.locator('table.rows tbody tr', { hasText: 'eu-2' }).first().waitFor(SOON);

  await page.goto(url + '#/cluster/eu-2');
  await page.getByText('Failed').first().waitFor(SOON);

  await page.goto(url + '#/');
  await page.locator('.legend .chip', { hasText: 'Failed' }).locator('.num', { hasText: '1' }).waitFor(SOON);
  await tell('silent us-1');
  await page.locator('.legend .chip', { hasText: 'Stale' }).locator('.num', { hasText: '1' }).waitFor(SOON);

  await tell('hub-stops');
  await page.waitForSelector('main[data-current="false"]', SOON);
  await page.locator('.banner').waitFor(SOON);
  await close('Failed to load resource');
}, 300_000);
