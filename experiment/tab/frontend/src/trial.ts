// All about one trial, in a dialog: hyperparameters, error, curves, output, attempts, files.
import {getTrial, type TrialPage} from './api';
import {drawCurves} from './curves';
import {copyButton, make, table} from './dom';
import {duration, number, shown, size, time} from './format';
import {LINES} from './palette';

const EVERY = 2000; // milliseconds between two looks at a trial that runs
const AFTER = 15; // looks after its end: the end of its output may reach another store later

/** Show a trial until the dialog is closed; one that runs is read again and again. */
export function openTrial(run: string, trial: number, closed: () => void): void {
  const dialog = make('dialog', document.body, '', {'aria-label': `Trial ${trial}`});
  const head = make('header', dialog);
  make('h1', head, `Trial ${trial}`);
  const close = make('button', head, 'Close', {type: 'button'});
  const problem = make('p', dialog, '', {class: 'warning', hidden: true});
  const body = make('div', dialog, '', {class: 'page'});
  close.onclick = () => dialog.close();
  let timer = 0;
  let left = 0;
  dialog.onclose = () => {
    clearTimeout(timer);
    dialog.remove();
    closed();
  };
  dialog.onclick = (event) => {
    if (event.target === dialog) dialog.close(); // beside it
  };
  let before = '';
  async function look(): Promise<void> {
    try {
      const page = await getTrial(run, trial);
      const now = JSON.stringify(page);
      if (now !== before) draw(body, page);
      before = now;
      left = page.status === 'running' || page.status === 'waiting' ? AFTER : left - 1;
      problem.hidden = true;
    } catch (error) {
      problem.textContent = String(error); // the next question may be answered
      problem.hidden = false;
    }
    if ((left > 0 || !problem.hidden) && dialog.open) timer = window.setTimeout(look, EVERY);
  }
  dialog.showModal();
  void look();
}

function draw(box: HTMLElement, page: TrialPage): void {
  const scrolled = [...box.querySelectorAll('pre')].map((pre) => pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 4);
  const [top, open] = [box.scrollTop, [...box.querySelectorAll('details')].map((one) => one.open)];
  box.replaceChildren();
  make('p', box, summary(page), {class: `big is-${page.status}`});
  if (page.error) drawError(box, page.error);
  const columns = make('div', box, '', {class: 'columns'});
  const params = section(columns, 'Hyperparameters');
  table(params, ['name', 'value'], page.params.map(([name, value]) => [name, shown(value)]), 'Hyperparameters');
  copyButton(params, () => `params = ${page.python}`);
  if (page.metrics.length) {
    const metrics = section(columns, 'Returned');
    table(metrics, ['metric', 'value'], page.metrics.map(([name, value]) => [name, shown(value)]), 'Returned metrics');
  }
  const attempts = section(columns, 'Attempts');
  const rows = page.attempts.map((one) => [String(one.number), one.slots.join(' '), time(one.start), time(one.end), one.ending + (one.why ? `: ${one.why}` : '')]);
  table(attempts, ['attempt', 'slot', 'started', 'ended', 'how'], rows, 'Attempts');
  drawAllCurves(box, page);
  for (const {name, text} of page.output) {
    const output = section(box, `Output: ${name}`);
    make('pre', output, text, {class: 'log', tabindex: 0});
  }
  const files = section(box, 'Files');
  make('p', files, page.folder, {class: 'path'});
  if (page.missing) make('p', files, `Output and files cannot be read now: ${page.missing}`, {class: 'warning'});
  if (page.files.length) table(files, ['file', 'size'], page.files.map((file) => [file.name, size(file.size)]), 'Files of the train function');
  box.querySelectorAll('pre.log').forEach((pre) => (pre.scrollTop = pre.scrollHeight));
  [...box.querySelectorAll('pre')].forEach((pre, index) => {
    if (scrolled[index] === false) pre.scrollTop = 0;
  });
  [...box.querySelectorAll('details')].forEach((one, index) => (one.open = open[index] ?? one.open));
  box.scrollTop = top;
}

function summary(page: TrialPage): string {
  const parts = [page.status + (page.reason ? ` at ${page.reason}` : '')];
  if (page.value !== null) parts.push(`value ${number(page.value)}`);
  if (page.seconds !== null) parts.push(`after ${duration(page.seconds)}`);
  if (page.generation !== null) parts.push(`generation ${page.generation}`);
  if (page.parent !== null) parts.push(`resumed from trial ${page.parent}`);
  return parts.join(', ');
}

function drawError(box: HTMLElement, error: NonNullable<TrialPage['error']>): void {
  const part = section(box, `Failed: ${error.kind}`);
  make('p', part, error.message, {class: 'warning'});
  if (error.traceback) make('pre', part, error.traceback, {tabindex: 0});
}

function drawAllCurves(box: HTMLElement, page: TrialPage): void {
  if (!page.curves.length) return;
  const part = section(box, 'Curves');
  const charts = make('div', part, '', {class: 'charts'});
  // All boxes first: how many fit beside each other decides their width.
  const boxes = page.curves.map(({tag}) => make('div', charts, '', {class: 'chart', role: 'img', 'aria-label': `Curve of ${tag} by step`}));
  page.curves.forEach((curve, index) => {
    const points = curve.steps.map((step, at) => [step, curve.values[at]] as const).sort((a, b) => a[0] - b[0]);
    const steps = new Map(points); // of a step that was reported twice, the last value
    drawCurves(boxes[index], [{name: curve.tag, colour: LINES[index % LINES.length], x: [...steps.keys()], y: [...steps.values()]}], 'step');
  });
}

function section(parent: Element, title: string): HTMLElement {
  const made = make('section', parent, '', {'aria-label': title});
  make('h2', made, title);
  return made;
}
