// A lane per slot over time: what it ran, coloured by what became of it, and why it waited.
import {button, colour, make} from '../dom';
import {prepare} from '../figure';
import {count, duration, number} from '../format';
import type {Run, Status} from '../model';
import {statusColour} from '../palette';
import {linear} from '../scale';
import type {Desk, View} from '../view';
import {lanesOf, type Lane, type Span} from './lanes';

const LEFT = 190;
const BOTTOM = 22;
const STEP = 22;

export function makeSlots(box: HTMLElement, desk: Desk): View {
  const bar = make('div', box, '', {class: 'bar'});
  const says = make('span', bar, '', {role: 'status'});
  const zoomBox = make('span', bar);
  const legend = make('span', bar, '', {class: 'legend'});
  for (const status of ['finished', 'stopped', 'failed', 'running']) make('span', legend, `■ ${status === 'stopped' ? 'stopped early' : status}`, {class: `is-${status}`});
  make('span', legend, '■ lost', {class: 'is-lost'});
  make('span', legend, '▒ waiting', {class: 'soft'});
  const scroller = make('div', box, '', {class: 'figure fill timeline', tabindex: 0, role: 'group', 'aria-label': 'Timeline; up and down go from one trial or wait to the next, Enter opens a trial, plus and minus zoom'});
  const canvas = make('canvas', scroller, '', {role: 'img'});
  const space = make('div', scroller);
  const tip = make('div', box, '', {class: 'tip', role: 'status', hidden: true});
  const details = make('details', box, '', {open: true});
  make('summary', details, 'As a table');
  const tableBox = make('div', details, '', {class: 'scroll short'});
  let lanes: Lane[] = [];
  let [from, to] = [0, 1]; // the shown part of the whole time
  let [begin, end] = [0, 1];
  let marked = ''; // the key of the span that the keyboard has chosen

  function zoom(factor: number, around = 0.5): void {
    const at = from + (to - from) * around;
    const span = Math.min(1, Math.max((to - from) * factor, 1e-5));
    from = Math.min(Math.max(0, at - span * around), 1 - span);
    to = from + span;
    paint();
  }
  button(zoomBox, '+', () => zoom(0.5), {'aria-label': 'zoom in'});
  button(zoomBox, '−', () => zoom(2), {'aria-label': 'zoom out'});

  function paint(): void {
    const [width, height] = [scroller.clientWidth, scroller.clientHeight];
    if (!width || !height) return;
    space.style.height = `${lanes.length * STEP + BOTTOM - height}px`;
    const brush = prepare(canvas, width, height);
    const time = linear('', begin + (end - begin) * from - begin, begin + (end - begin) * to - begin, duration);
    const x = (at: number) => LEFT + time.at(at - begin)! * (width - LEFT - 10);
    const first = Math.floor(scroller.scrollTop / STEP);
    const last = Math.min(lanes.length, first + Math.ceil(height / STEP) + 1);
    brush.save();
    brush.beginPath();
    brush.rect(LEFT, 0, width - LEFT, height - BOTTOM);
    brush.clip();
    for (let index = first; index < last; index++) {
      const top = index * STEP - scroller.scrollTop;
      for (const span of lanes[index].spans) drawSpan(brush, span, x, top, width);
    }
    const chosen = marked && spansOf(lanes).find(({key}) => key === marked);
    if (chosen) {
      brush.strokeStyle = colour('fg');
      brush.strokeRect(x(chosen.span.start) - 1, chosen.index * STEP - scroller.scrollTop + 1, Math.max(x(chosen.span.end) - x(chosen.span.start), 1) + 2, STEP - 2);
    }
    brush.restore();
    brush.textBaseline = 'middle';
    for (let index = first; index < last; index++) {
      const top = index * STEP - scroller.scrollTop;
      if (top > height - BOTTOM - STEP / 2) break;
      brush.fillStyle = colour('fg');
      brush.textAlign = 'left';
      brush.fillText(`${lanes[index].slot} on ${lanes[index].host}`.slice(0, 26), 2, top + STEP / 2);
      brush.textAlign = 'right';
      brush.fillText(`${Math.round(100 * lanes[index].use)} %`, LEFT - 8, top + STEP / 2);
    }
    brush.fillStyle = colour('soft');
    brush.textAlign = 'center';
    for (const tick of time.ticks) brush.fillText(tick.text, LEFT + tick.at * (width - LEFT - 10), height - BOTTOM / 2);
  }

  function drawSpan(brush: CanvasRenderingContext2D, span: Span, x: (at: number) => number, top: number, width: number): void {
    const [start, stop] = [x(span.start), x(span.end)];
    if (stop < LEFT || start > width) return;
    if (span.kind === 'waiting') {
      brush.globalAlpha = 0.25;
      brush.fillStyle = colour('soft');
      brush.fillRect(start, top + 8, stop - start, STEP - 16);
      brush.globalAlpha = 1;
      return;
    }
    brush.fillStyle = statusColour(span.kind as Status | 'lost');
    const wide = stop - start;
    brush.fillRect(start, top + 2, wide > 3 ? wide - 1 : Math.max(wide, 0.7), STEP - 4);
    if (wide > 26 && span.trial !== undefined) {
      brush.fillStyle = colour('bg');
      brush.textBaseline = 'middle';
      brush.textAlign = 'center';
      brush.fillText(String(span.trial), (Math.max(start, LEFT) + Math.min(stop, width)) / 2, top + STEP / 2);
    }
  }

  function under(event: MouseEvent): Span | undefined {
    const bounds = canvas.getBoundingClientRect();
    const lane = lanes[Math.floor((event.clientY - bounds.top + scroller.scrollTop) / STEP)];
    const share = (event.clientX - bounds.left - LEFT) / (bounds.width - LEFT - 10);
    const at = begin + (end - begin) * (from + (to - from) * share);
    const slack = ((end - begin) * (to - from) * 2) / bounds.width;
    return lane?.spans.findLast((span) => at >= span.start - slack && at <= span.end + slack);
  }

  /** Describe a span at a place of the window. */
  function showTip(span: Span, x: number, y: number): void {
    tip.hidden = false;
    tip.textContent = described(desk.run, span);
    const bounds = box.getBoundingClientRect();
    Object.assign(tip.style, {left: `${Math.min(x - bounds.left + 16, bounds.width - 350)}px`, top: `${y - bounds.top + 48}px`});
  }

  /** Choose the next span, or the one before, and bring it into view. */
  function step(by: number): void {
    const all = spansOf(lanes);
    const next = all[Math.min(Math.max(all.findIndex(({key}) => key === marked) + by, 0), all.length - 1)];
    if (!next) return;
    marked = next.key;
    const [at, shown] = [(next.span.start - begin) / (end - begin), to - from];
    if (at < from || at > to) {
      from = Math.min(Math.max(0, at - shown / 2), 1 - shown);
      to = from + shown;
    }
    const top = next.index * STEP;
    scroller.scrollTop = Math.min(top, Math.max(scroller.scrollTop, top + STEP + BOTTOM - scroller.clientHeight));
    paint();
    const bounds = canvas.getBoundingClientRect();
    showTip(next.span, bounds.left + LEFT + ((at - from) / shown) * (bounds.width - LEFT - 10), bounds.top + top - scroller.scrollTop + STEP / 2);
  }

  scroller.onscroll = paint;
  scroller.onblur = () => (tip.hidden = true);
  scroller.onpointermove = (event) => {
    const span = under(event);
    if (span) showTip(span, event.clientX, event.clientY);
    else tip.hidden = true;
  };
  scroller.onpointerleave = () => (tip.hidden = true);
  scroller.onclick = (event) => {
    const trial = under(event)?.trial;
    if (trial !== undefined) desk.openTrial(trial);
  };
  scroller.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.shiftKey && scroller.scrollHeight > scroller.clientHeight + 4) return; // it scrolls
    event.preventDefault();
    const share = (event.offsetX - LEFT) / (scroller.clientWidth - LEFT - 10);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(Math.max(share, 0), 1));
  }, {passive: false});
  scroller.onkeydown = (event) => {
    const shift = {ArrowLeft: -0.2, ArrowRight: 0.2}[event.key];
    if (event.key === '+') zoom(0.5);
    else if (event.key === '-') zoom(2);
    else if (shift) {
      const span = to - from;
      from = Math.min(Math.max(0, from + shift * span), 1 - span);
      to = from + span;
      paint();
    } else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
      event.preventDefault(); // it scrolls as far as the chosen one needs
      step(event.key === 'ArrowUp' ? -1 : 1);
    } else if (event.key === 'Enter') {
      event.preventDefault(); // Enter would press the dialog's button, too
      const trial = spansOf(lanes).find(({key}) => key === marked)?.span.trial;
      if (trial !== undefined) desk.openTrial(trial);
    }
  };

  return {
    draw() {
      const {run} = desk;
      const found = lanesOf(run, Date.now() / 1000);
      ({lanes, begin, end} = found);
      const use = found.present ? `, ${Math.round((100 * found.busy) / found.present)} % of the slots' time used` : '';
      const waits = found.reasons.map(([why, seconds]) => `${duration(seconds)} ${why}`).join(', ');
      says.textContent = `${count(lanes.length, 'slot')}${use}${waits ? `; waited ${waits}` : ''}`;
      canvas.setAttribute('aria-label', `Timeline of ${count(lanes.length, 'slot')} over ${duration(end - begin)}; the table below has the same facts`);
      drawTable(tableBox, lanes);
      scroller.style.flex = `0 1 ${lanes.length * STEP + BOTTOM + 4}px`;
      paint();
    },
  };
}

/** All spans, lane by lane, in the order of time; each with a key that it keeps in a running search. */
function spansOf(lanes: Lane[]): {span: Span; index: number; key: string}[] {
  return lanes.flatMap(({slot, spans}, index) => {
    const long = spans.filter((span) => span.trial !== undefined || span.end > span.start);
    return long.sort((a, b) => a.start - b.start).map((span) => ({span, index, key: `${slot} ${span.start} ${span.trial}`}));
  });
}

function described(run: Run, span: Span): string {
  const lasted = duration(span.end - span.start);
  if (span.trial === undefined) return `waits ${lasted} ${span.why}`;
  const trial = run.trials.get(span.trial);
  const score = trial ? run.score(trial) : null;
  const attempt = span.attempt && span.attempt > 1 ? `, attempt ${span.attempt}` : '';
  return `trial ${span.trial}${attempt}: ${span.kind} after ${lasted}${score === null ? '' : `, ${number(score)}`}${span.why ? `\n${span.why}` : ''}`;
}

function drawTable(box: HTMLElement, lanes: Lane[]): void {
  box.replaceChildren();
  const made = make('table', box, '', {'aria-label': 'Slots'});
  const head = make('tr', make('thead', made));
  for (const title of ['slot', 'host', 'trials', 'used', 'waited', 'why it left']) make('th', head, title, {scope: 'col'});
  const body = make('tbody', made);
  for (const lane of lanes.slice(0, 500)) {
    const row = make('tr', body);
    const trials = lane.spans.filter((span) => span.trial !== undefined).length;
    const waited = [...lane.waited].map(([why, seconds]) => `${duration(seconds)} ${why}`).join(', ');
    for (const cell of [lane.slot, lane.host, String(trials), `${Math.round(100 * lane.use)} %`, waited, lane.left]) make('td', row, cell);
  }
}
