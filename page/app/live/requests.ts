// Requests to the server that the page comes from. A token goes into the header alone.

const TOKEN = 'statusbridge-token';

/** Kept until the tab is closed. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? '',
  set: (value: string) => (value ? sessionStorage.setItem(TOKEN, value) : sessionStorage.removeItem(TOKEN)),
};

/** An answer other than 200, in the server's words. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

const base = new URL('../v1alpha1/', document.baseURI);

export async function request(path: string, signal: AbortSignal, accept = 'application/json'): Promise<Response> {
  const headers: Record<string, string> = { accept };
  const own = token.get();
  if (own) headers.authorization = `Bearer ${own}`;
  let response: Response;
  try {
    response = await fetch(new URL(path, base), { headers, signal, cache: 'no-store', redirect: 'manual' });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Error('the server cannot be reached');
  }
  if (response.ok) return response;
  if (response.type === 'opaqueredirect') throw new Error('something before the server asks you to log in: reload the page');
  const body: { reason?: string; message?: string } = await response.json().catch(() => ({}));
  const message = body.message ?? `the server answered ${response.status} ${response.statusText}`;
  throw new Refusal(response.status, body.reason ?? '', message);
}
