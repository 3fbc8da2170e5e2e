// A FleetRollout as somebody sees it: it goes on, fails, is held back, and is told what to do about it.

import type { BrowserContextOptions, Page } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import type { Rollout } from '../app/model/api';
import { isCurrent, open, violations, within } from './chromium';
import { R2, ago, generated, inWaves, judge, rollOut } from './fleets.mjs';
import { browser, server, url } from './stage';

const PAYMENTS = '#/rollout/team-a/payments';
const shows = async (address: string, options?: BrowserContextOptions) => {
  const watched = await open(browser, url + address, options);
  await isCurrent(watched.page);
  return watched;
};
const wave = (page: Page, name: string) => page.locator('.lane .wave', { has: page.getByRole('button', { name }) });
const commands = (page: Page) => page.getByRole('region', { name: 'What you can do' }).locator('code').allInnerTexts();
const euGate = () => server.gates.get('team-a/payments-eu');

/** Writes the rollout anew, as the gates and `more` have it. */
function decided(more: Partial<Rollout> = {}) {
  rollOut(server, more);
  server.commit();
}

test('it goes on to the next wave within a second, and the page says so', async () => {
  const { page, close } = await shows(PAYMENTS);
  await wave(page, 'canary').locator('.state', { hasText: 'open' }).waitFor();
  expect(await page.locator('[aria-current="step"] button').innerText()).toContain('eu');
  expect(await page.locator('.verdict.large').innerText()).toMatch(/under way.*RollingOut wave eu \(2 of 4\).*in progress/s);
  expect(await wave(page, 'eu').locator('.stack').getAttribute('aria-label')).toMatch(/^Clusters of wave eu: \d+ healthy, \d+ on the way$/);
  expect(await wave(page, 'us').locator('.stack').getAttribute('aria-label')).toMatch(/^Clusters of wave us: \d+ waiting$/);
  for (const { name, labels } of server.clusters) {
    if (labels?.wave === 'eu') server.setCell('team-a/payments', name, 'Healthy', R2, { since: ago(601) });
  }
  for (const name of ['eu', 'us']) judge(server, `payments-${name}`);
  const begin = performance.now();
  decided();
  await page.locator('[aria-current="step"]', { hasText: 'us' }).waitFor();
  const took = performance.now() - begin;
  console.log(`the next wave is on the screen after ${took.toFixed(0)} ms`);
  within(took, 1000);
  await page.getByText('RollingOut, eu (2/4) →').waitFor();
  await page.getByRole('heading', { name: 'Wave us' }).waitFor();
  await close();
});

test('a wave that failed: who failed, which revision was good, and how to go on', async () => {
  const { page, close } = await shows(PAYMENTS, { permissions: ['clipboard-read', 'clipboard-write'] });
  server.setCell('team-a/payments', 'euw-4', 'Failed', R2, { reason: 'HealthCheckFailed' });
  judge(server, 'payments-eu');
  decided();
  await page.locator('.verdict.large', { hasText: 'stalled' }).waitFor();
  await wave(page, 'eu').locator('.state', { hasText: 'failed' }).waitFor();
  const first = page.locator('table.rows tbody tr').first();
  await first.getByText('HealthCheckFailed').waitFor();
  expect(await first.innerText()).toContain('euw-4');
  await page.getByRole('region', { name: 'Other revisions' }).getByText('main@sha1:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b').waitFor();
  const copy = page.getByRole('button', { name: /^Copy: statusbridge rollout promote/ });
  expect(await copy.isDisabled()).toBe(true);
  await page.getByRole('textbox', { name: 'Reason' }).fill("it's known");
  const promote = String.raw`statusbridge rollout promote payments -n team-a --wave eu --reason 'it'\''s known' --for 1h`;
  expect(await commands(page)).toEqual([promote, 'statusbridge rollout pause payments -n team-a']);
  await copy.click();
  await page.getByText('Copied.').waitFor();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(promote);
  expect(server.requests.filter((path) => path.includes('known'))).toEqual([]);
  await close();
});

test('a browser that does not let it copy selects the command', async () => {
  const { page, close } = await shows(PAYMENTS);
  await page.evaluate(() => Object.defineProperty(navigator, 'clipboard', { value: { writeText: () => Promise.reject(new Error('no')) } }));
  await page.getByRole('button', { name: /^Copy: statusbridge rollout pause/ }).click();
  await page.getByText('does not let this page copy').waitFor();
  expect(await page.evaluate(() => getSelection()?.toString())).toBe('statusbridge rollout pause payments -n team-a');
  await close();
});

describe('what holds it back is said, with the command that helps', () => {
  const pause = 'statusbridge rollout pause payments -n team-a';
  test.each<[string, Partial<Rollout>, string]>([
    ['Paused.', { paused: true, reason: 'GatePaused' }, 'statusbridge rollout resume payments -n team-a'],
    ['Paused.', { paused: true, stalled: true, reason: 'GateChanged' }, 'statusbridge rollout resume payments -n team-a'],
    ['Frozen.', { reason: 'Frozen' }, pause],
    ['Outside its windows.', { reason: 'OutsideWindow' }, pause],
  ])('%s %j', async (word, more, command) => {
    const { page, close } = await shows(PAYMENTS);
    expect(await page.locator('.hold').count()).toBe(0);
    decided(more);
    await page.locator('.hold', { hasText: word }).waitFor();
    expect(await commands(page)).toEqual([command]);
    expect(await violations(page)).toEqual([]);
    await close();
  });

  test('a gate that waits for an approval', async () => {
    const { page, close } = await shows(PAYMENTS);
    expect((await commands(page)).filter((line) => line.includes('approve'))).toEqual([]);
    euGate().verdict.waitingFor.push({ reason: 'ApprovalRequired', message: 'nobody has approved it', count: 0 });
    server.pendingGates.add('team-a/payments-eu');
    decided();
    await page.getByText('statusbridge rollout approve payments -n team-a --wave eu', { exact: true }).waitFor();
    await close();
  });

  test('nothing is to be done about one that is rolled out', async () => {
    const { page, close } = await shows('#/rollout/team-b/search');
    await page.locator('.verdict.large', { hasText: 'rolled out' }).waitFor();
    await page.getByText('Nothing has been decided about its waves yet.').waitFor();
    expect(await page.getByRole('region', { name: 'What you can do' }).count()).toBe(0);
    await close();
  });
});

test('any wave can be opened by keys, and the address names it', async () => {
  const { page, close } = await shows('#/');
  await page.keyboard.press('r');
  await page.waitForURL(/#\/rollouts$/);
  await page.getByRole('link', { name: 'payments', exact: true }).first().focus();
  await page.keyboard.press('Enter');
  await page.waitForURL(/#\/rollout\/team-a\/payments$/);
  await wave(page, 'canary').getByRole('button').focus();
  await page.keyboard.press('Enter');
  await page.waitForURL(/wave=canary/);
  await expect.poll(() => page.locator('table.rows tbody tr').count()).toBe(2);
  await wave(page, 'ap').getByRole('button').press('Enter');
  await page.getByText('Which clusters the wave has is told when it starts. As things are, it would have 9 clusters.').waitFor();
  await page.getByRole('link', { name: 'payments-canary' }).count();
  await wave(page, 'canary').getByRole('button').press('Enter');
  await page.getByRole('region', { name: 'Wave canary' }).getByRole('link', { name: 'payments-canary' }).press('Enter');
  await page.waitForURL(/#\/gate\/team-a\/payments-canary/);
  await page.locator('.facts').getByRole('link', { name: 'payments', exact: true }).last().waitFor();
  await close();
});

test('the list has what is stalled first, and says what each rollout waits for', async () => {
  const { page, close } = await shows('#/rollouts');
  const rows = page.locator('table.rows tbody tr');
  expect(await rows.allInnerTexts()).toEqual([expect.stringContaining('under way'), expect.stringContaining('rolled out')]);
  const search = server.rollouts.get('team-b/search');
  server.setRollout({ ...search, ready: false, stalled: true, reason: 'WavesOverlap', message: '1 cluster in more than one wave' });
  server.commit();
  await rows.first().getByText('WavesOverlap').waitFor();
  await page.getByLabel('Name').fill('pay');
  await expect.poll(() => rows.count()).toBe(1);
  await page.getByLabel('Name').fill('nothing');
  await page.getByText('No rollout matches.').waitFor();
  await page.getByRole('link', { name: 'Show all rollouts' }).click();
  await expect.poll(() => rows.count()).toBe(2);
  await close();
});

test('a rollout that is gone is shown no more', async () => {
  const { page, close } = await shows(PAYMENTS);
  server.rollouts.delete('team-a/payments');
  server.send({ ...server.event(), gone: { packages: [], gates: [], rollouts: ['team-a/payments'] } });
  await page.getByRole('heading', { name: 'There is no FleetRollout team-a/payments' }).waitFor();
  await close();
});

describe.each([
  ['light', { colorScheme: 'light' }],
  ['dark', { colorScheme: 'dark' }],
  ['phone', { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }],
] as [string, BrowserContextOptions][])('%s', (_, options) => {
  test.each(['#/rollouts', PAYMENTS])('%s keeps WCAG AA and the width', async (address) => {
    server.setCell('team-a/payments', 'euw-4', 'Failed', R2, { reason: 'HealthCheckFailed' });
    judge(server, 'payments-eu');
    decided({ paused: true });
    const { page, close } = await shows(address, options);
    await page.locator('table.rows').first().waitFor();
    expect(await violations(page)).toEqual([]);
    const beyond = await page.evaluate(() => {
      const { scrollWidth, clientWidth } = document.querySelector('main')!;
      return [scrollWidth - clientWidth, document.documentElement.scrollWidth - innerWidth];
    });
    expect(beyond).toEqual([0, 0]);
    await close();
  });
});

test.each([[100, 10_000], [2, 10_000]])('%d waves of %d clusters are few elements', async (waves, clusters) => {
  const fleet = generated(clusters, 1);
  const key = inWaves(fleet, waves);
  const { page, close } = await open(browser, `${await fleet.listen()}#/rollout/${key}`);
  await isCurrent(page);
  await page.locator('table.rows tbody tr').first().waitFor();
  expect(await page.locator('.lane .wave').count()).toBe(waves);
  const elements = await page.evaluate(() => document.querySelectorAll('*').length);
  console.log(`${waves} waves of ${clusters} clusters are ${elements} elements`);
  expect(elements).toBeLessThan(6000);
  // The one that is under way is in sight.
  const current = page.locator('[aria-current="step"]');
  const [box, lane] = [await current.boundingBox(), await page.locator('.lane').boundingBox()];
  expect(box!.x).toBeGreaterThanOrEqual(lane!.x);
  expect(box!.x + box!.width).toBeLessThanOrEqual(lane!.x + lane!.width + 1);
  await close();
  await fleet.close();
});
