// What each slot did: attempts at trials, and the waits between them with their reasons.
import type {Run} from '../model';

export interface Span {
  start: number;
  end: number;
  /** The status of the trial, 'lost', or 'waiting'. */
  kind: string;
  trial?: number;
  attempt?: number;
  why: string;
}

export interface Lane {
  slot: string;
  host: string;
  /** Share of its time in which it ran trials. */
  use: number;
  /** Seconds by reason. */
  waited: Map<string, number>;
  /** Why it left; '' if it stayed. */
  left: string;
  spans: Span[];
}

/** After a duration: "3 s for outcomes of other trials". */
const REASONS: Record<string, string> = {
  'no trial yet': 'for outcomes of other trials, as at the end of a generation',
  'nothing left': 'with no trial left',
  'gpu set aside': 'with a GPU that gets no more trials',
  'host avoided': 'since the waiting trials have died on its host',
  'too few slots': 'for other slots, as too few were free for a trial',
};

/** A lane while it is made. Slots of two applications may have the same name. */
type Open = Lane & {application: number; joined: number; gone: number};

/** Return the lanes of all slots, and sums over them. */
export function lanesOf(run: Run, now: number) {
  const lanes = new Map<string, Open>();
  const end = run.facts.ended ?? (run.facts.state === 'running' ? now : (run.facts.last ?? now));
  const last = Math.max(end, run.facts.last ?? end); // the end of a search is written in whole seconds
  const begun: number[] = []; // when each application began
  const ends: number[] = []; // the time of the last record of each application that names a slot
  const lane = (application: number, slot: string, at: number) => {
    const name = `${application} ${slot}`;
    let found = lanes.get(name);
    if (!found) lanes.set(name, (found = {slot, host: '', use: 0, waited: new Map(), left: '', spans: [], application, joined: at, gone: Infinity}));
    ends[application] = Math.max(ends[application] ?? at, at);
    return found;
  };
  const told: {lane: Open; at: number; why: string}[] = [];
  for (const {at, slot, what, text} of run.slotEvents) {
    if (what === 'begun') begun.push(at);
    const application = begun.length;
    if (what === 'joined') Object.assign(lane(application, slot, at), {host: text, joined: at});
    if (what === 'left') Object.assign(lane(application, slot, at), {gone: at, left: text});
    if (what === 'waiting') told.push({lane: lane(application, slot, at), at, why: text});
  }
  const add = (slots: string[], span: Span) => {
    const application = begun.filter((at) => at <= span.start).length;
    for (const slot of slots) lane(application, slot, span.start).spans.push(span);
    if (slots.length) ends[application] = Math.max(ends[application], span.end);
  };
  for (const trial of run.trials.values()) {
    if (run.lost.has(`${trial.id}-${trial.attempt}`)) continue; // this attempt is among the lost ones
    const end = trial.end ?? last;
    add(trial.slots, {start: trial.start, end: Math.max(end, trial.start), kind: trial.status, trial: trial.id, attempt: trial.attempt, why: trial.why});
  }
  for (const {trial, number, slots, start, end, why} of run.lost.values()) add(slots, {start, end, kind: 'lost', trial, attempt: number, why});
  for (const one of lanes.values()) {
    one.spans.sort((a, b) => a.start - b.start);
    if (one.gone !== Infinity) continue;
    if (one.application === begun.length) one.gone = last;
    else Object.assign(one, {gone: ends[one.application], left: 'its application ended'});
  }
  for (const {lane, at, why} of told) wait(lane, at, REASONS[why] ?? why);
  return sums([...lanes.values()], last);
}

/** Add a wait, which ends with the slot's next trial. */
function wait(lane: Open, at: number, why: string): void {
  const next = lane.spans.find((span) => span.kind !== 'waiting' && span.start >= at - 1e-3);
  const until = Math.max(at, next?.start ?? lane.gone);
  const before = lane.spans.findLast((span) => span.kind === 'waiting' && span.end > at);
  if (before) {
    lane.waited.set(before.why, lane.waited.get(before.why)! - (before.end - at));
    before.end = at;
  }
  lane.spans.push({start: at, end: until, kind: 'waiting', why});
  lane.waited.set(why, (lane.waited.get(why) ?? 0) + until - at);
}

function sums(lanes: Open[], last: number) {
  let [busy, present, begin] = [0, 0, last];
  const reasons = new Map<string, number>();
  for (const lane of lanes) {
    const ran = lane.spans.filter((span) => span.kind !== 'waiting').reduce((sum, span) => sum + span.end - span.start, 0);
    const there = Math.max(lane.gone - lane.joined, ran);
    lane.use = there ? ran / there : 0;
    busy += ran;
    present += there;
    begin = Math.min(begin, lane.joined, lane.spans[0]?.start ?? last);
    for (const [why, seconds] of lane.waited) reasons.set(why, (reasons.get(why) ?? 0) + seconds);
  }
  lanes.sort((a, b) => a.application - b.application || a.slot.localeCompare(b.slot, 'en', {numeric: true}));
  const end = Math.max(last, begin + 1e-3);
  return {lanes: lanes as Lane[], begin, end, busy, present, reasons: [...reasons].sort((a, b) => b[1] - a[1]).filter(([, seconds]) => seconds > 0.05)};
}
