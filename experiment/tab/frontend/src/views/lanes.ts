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

/** Return the lanes of all slots, and sums over them. */
export function lanesOf(run: Run, now: number) {
  const lanes = new Map<string, Lane & {joined: number; gone: number}>();
  const end = run.facts.ended ?? (run.facts.state === 'running' ? now : (run.facts.last ?? now));
  const last = Math.max(end, run.facts.last ?? end); // the end of a search is written in whole seconds
  const lane = (slot: string, at: number) => {
    let found = lanes.get(slot);
    if (!found) lanes.set(slot, (found = {slot, host: '', use: 0, waited: new Map(), left: '', spans: [], joined: at, gone: last}));
    return found;
  };
  const told: {slot: string; at: number; why: string}[] = [];
  for (const {at, slot, what, text} of run.slotEvents) {
    if (what === 'joined') Object.assign(lane(slot, at), {host: text, joined: at});
    if (what === 'left') Object.assign(lane(slot, at), {gone: at, left: text});
    if (what === 'waiting') told.push({slot, at, why: text});
  }
  const add = (slots: string[], span: Span) => slots.forEach((slot) => lane(slot, span.start).spans.push(span));
  for (const trial of run.trials.values()) {
    if (trial.status === 'waiting') continue; // its attempts are among the lost ones
    const end = trial.end ?? last;
    add(trial.slots, {start: trial.start, end: Math.max(end, trial.start), kind: trial.status, trial: trial.id, attempt: trial.attempt, why: trial.why});
  }
  for (const {trial, number, slots, start, end, why} of run.lost.values()) add(slots, {start, end, kind: 'lost', trial, attempt: number, why});
  for (const one of lanes.values()) one.spans.sort((a, b) => a.start - b.start);
  for (const {slot, at, why} of told) wait(lane(slot, at), at, REASONS[why] ?? why);
  return sums([...lanes.values()], last);
}

/** Add a wait, which ends with the slot's next trial. */
function wait(lane: Lane & {gone: number}, at: number, why: string): void {
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

function sums(lanes: (Lane & {joined: number; gone: number})[], last: number) {
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
  lanes.sort((a, b) => a.slot.localeCompare(b.slot, 'en', {numeric: true}));
  const end = Math.max(last, begin + 1e-3);
  return {lanes: lanes as Lane[], begin, end, busy, present, reasons: [...reasons].sort((a, b) => b[1] - a[1]).filter(([, seconds]) => seconds > 0.05)};
}
