// What is known of a package in a cluster, a line each.

import type { ComponentChildren } from 'preact';
import type { Row } from '../model/api';
import { unix } from '../model/time';
import { Revision, Since, State } from './parts';

export interface Line {
  key: string;
  /** What the line is about. */
  about: ComponentChildren;
  /** What stands in the further column. */
  more?: ComponentChildren;
  /** Left out where nothing is known. */
  row: Row | undefined;
  asOf: string | null;
  message: string;
}

interface Props {
  label: string;
  about: string;
  /** Name of a further column. */
  more?: string;
  lines: Line[];
  now: number;
  /** What stands below them. */
  children?: ComponentChildren;
}

export function Rows({ label, about, more, lines, now, children }: Props) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table class="rows">
        <thead>
          <tr>
            <th>{about}</th>
            <th>State</th>
            <th>Reason</th>
            {more && <th>{more}</th>}
            <th>Desired</th>
            <th>Applied</th>
            <th>Healthy</th>
            <th>Since</th>
            <th>Evidence</th>
          </tr>
        </thead>
        <tbody>
          {lines.map(({ key, about, more: own, row, asOf, message }) => (
            <tr key={key}>
              <td>{about}</td>
              <td>
                {row ? <State word={row.state} /> : <span class="dim">not known</span>}
              </td>
              <td class="why">
                {row && row.reason !== row.state && <b>{row.reason}</b>} {message}
                {row?.excused && <span class="override"> excused: {row.excused}</span>}
                {row?.reportedBy && <span class="dim"> reported by {row.reportedBy}</span>}
              </td>
              {more && <td>{own}</td>}
              {[row?.desiredRevision, row?.appliedRevision, row?.healthyRevision].map((words, place) => (
                <td key={place}>
                  <Revision words={words} />
                </td>
              ))}
              <td class="num">
                <Since at={row?.lastTransitionTime} now={now} />
              </td>
              <td class="num">{unix(asOf) === null ? <span class="dim">none</span> : <Since at={asOf} now={now} />}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {children}
    </div>
  );
}
