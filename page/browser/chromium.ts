// A page in a real Chromium, with all that it must not do watched.

import { type Browser, type BrowserContextOptions, type Page, chromium } from 'playwright-core';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect } from 'vitest';

const ARGUMENTS = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync',
];

export function launch(): Promise<Browser> {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ARGUMENTS });
}

/** Times hold on a machine that does nothing else, where MEASURE=1 asks for them: else they are printed alone. */
export function within(took: number, most: number) {
  if (process.env.MEASURE === '1') expect(took).toBeLessThan(most);
  else expect(took).toBeGreaterThan(0);
}

export interface Watched {
  page: Page;
  /** Fails when the page asked another host, broke its policy, or had an error; `allowed` are parts of errors to expect. */
  close: (...allowed: string[]) => Promise<void>;
}

export async function open(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Watched> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 760 }, ...options });
  const page = await context.newPage();
  const wrong: string[] = [];
  const host = new URL(url).host;
  page.on('request', (request) => {
    if (new URL(request.url()).host !== host) wrong.push(`asks another host: ${request.url()}`);
  });
  page.on('console', (message) => {
    if (message.type() === 'error' || message.text().includes('Content Security Policy')) wrong.push(message.text());
  });
  page.on('pageerror', (error) => wrong.push(error.message));
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(`breaks its policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  await page.goto(url);
  const close = async (...allowed: string[]) => {
    await context.close();
    expect(wrong.filter((text) => !allowed.some((part) => text.includes(part)))).toEqual([]);
  };
  return { page, close };
}

export function isCurrent(page: Page): Promise<unknown> {
  return page.waitForSelector('main[data-current="true"]');
}

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What the page does not keep of WCAG 2.2 AA, as far as a program can tell. */
export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  return page.evaluate(async () => {
    const { axe } = window as unknown as { axe: typeof import('axe-core') };
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    const { violations } = await axe.run(document, { runOnly: tags });
    return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html.slice(0, 160)} ${node.failureSummary ?? ''}`));
  });
}
