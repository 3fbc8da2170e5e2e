// Server-sent events out of a stream of bytes: fetch reads them, since EventSource cannot send a token.

export interface ServerEvent {
  event: string;
  data: string;
}

/** Longest event, in characters: what does not end is not collected for ever. */
const LONGEST = 64 * 1024 * 1024;

/** Takes pieces of text as they come, and gives the events that are complete. */
export function parser(): (piece: string) => ServerEvent[] {
  let rest: string[] = [];
  let event = '';
  let data: string[] = [];
  let size = 0;
  return (piece) => {
    size += piece.length;
    if (size > LONGEST) throw new Error('an event of the server does not end');
    const end = piece.lastIndexOf('\n');
    if (end < 0) {
      rest.push(piece);
      return [];
    }
    const lines = (rest.join('') + piece.slice(0, end)).split('\n');
    rest = [piece.slice(end + 1)];
    const events: ServerEvent[] = [];
    for (const raw of lines) {
      const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
      if (line === '') {
        if (data.length > 0) events.push({ event: event || 'message', data: data.join('\n') });
        [event, data, size] = ['', [], 0];
        continue;
      }
      const colon = line.indexOf(':');
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'event') event = value;
      else if (field === 'data') data.push(value);
    }
    return events;
  };
}
