// Parallel coordinates: a line per trial over all hyperparameters and the objective. Ranges of axes can be kept.
import {colour, make} from '../dom';
import {line, prepare} from '../figure';
import {count, number} from '../format';
import {limits, type Run, type Trial} from '../model';
import {viridis} from '../palette';
import {linear, scaleOf, type Scale} from '../scale';

const TOP = 30;
const BOTTOM = 18;
const INACTIVE = -0.05; // where a trial's line passes the axis of a hyperparameter that it lacks

interface Axis {
  name: string;
  scale: Scale;
  at(trial: Trial): number | null;
}

export class ParallelCoordinates {
  private readonly box: HTMLElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly says: HTMLElement;
  private axes: Axis[] = [];
  private trials: Trial[] = [];
  private run?: Run;
  private readonly kept = new Map<string, [number, number]>();
  private drag: {axis: Axis; from: number} | null = null;
  private focused = 0;

  constructor(parent: Element, private readonly open: (trial: number) => void) {
    this.says = make('p', parent, '', {role: 'status'});
    this.box = make('div', parent, '', {class: 'figure parallel'});
    this.canvas = make('canvas', this.box, '', {role: 'img', tabindex: 0});
    this.canvas.onpointerdown = (event) => this.begin(event);
    this.canvas.onpointermove = (event) => this.move(event);
    this.canvas.onpointerup = () => (this.drag = null);
    this.canvas.onkeydown = (event) => this.key(event);
  }

  draw(run: Run, trials: Trial[], names: string[]): void {
    this.run = run;
    this.trials = trials;
    const [low, high] = limits(run, trials.map((trial) => run.score(trial)!), false);
    this.axes = names.map((name) => {
      const scale = scaleOf(run, name, run.trials.values());
      return {name, scale, at: (trial) => scale.at(trial.params[name])};
    });
    const score = linear(run.title, low, high);
    const inside = (place: number | null) => (place === null ? null : Math.min(Math.max(place, 0), 1));
    this.axes.push({name: '', scale: score, at: (trial) => inside(score.at(run.score(trial)!))});
    this.paint();
  }

  private paint(): void {
    const {run} = this;
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    if (!run || !width || !height) return;
    const brush = prepare(this.canvas, width, height);
    const kept = this.trials.filter((trial) => this.keeps(trial));
    const others = kept.length < this.trials.length ? this.trials.filter((trial) => !this.keeps(trial)) : [];
    brush.globalAlpha = Math.max(0.1, Math.min(0.7, 60 / Math.max(kept.length, 1)));
    for (const trial of others.slice(0, 1500)) this.polyline(brush, trial, colour('line'));
    const last = this.axes[this.axes.length - 1];
    const merit = (trial: Trial) => (run.direction === 'max' ? last.at(trial)! : 1 - last.at(trial)!);
    for (const trial of kept.sort((a, b) => merit(a) - merit(b))) this.polyline(brush, trial, viridis(merit(trial)));
    brush.globalAlpha = 1;
    const best = run.best();
    if (best && this.keeps(best)) {
      brush.lineWidth = 2.5;
      this.polyline(brush, best, colour('best'));
      brush.lineWidth = 1;
    }
    this.axes.forEach((axis, index) => this.axis(brush, axis, index));
    const top = kept[kept.length - 1];
    this.says.textContent = this.kept.size
      ? `${count(kept.length, 'trial')} kept${top ? `, the best of them ${number(run.score(top)!)} in trial ${top.id}` : ''}; Escape keeps all again`
      : `${count(this.trials.length, 'trial')} with a value`;
    this.canvas.setAttribute('aria-label', `Parallel coordinates of ${count(this.trials.length, 'trial')} over ${this.axes.map((axis) => axis.scale.title).join(', ')}. Left and right choose an axis, up and down keep a quarter of it, Enter opens the best trial that is kept.`);
  }

  private axis(brush: CanvasRenderingContext2D, axis: Axis, index: number): void {
    const x = this.x(index);
    brush.strokeStyle = document.activeElement === this.canvas && index === this.focused ? colour('best') : colour('soft');
    line(brush, x, this.y(0), x, this.y(1));
    const range = this.kept.get(axis.name);
    if (range) {
      brush.fillStyle = colour('best');
      brush.globalAlpha = 0.35;
      brush.fillRect(x - 6, this.y(range[1]), 12, this.y(range[0]) - this.y(range[1]));
      brush.globalAlpha = 1;
    }
    brush.textBaseline = 'middle';
    const right = index === this.axes.length - 1;
    brush.textAlign = right ? 'right' : 'left';
    let free = Infinity;
    for (const tick of axis.scale.ticks) {
      const y = this.y(tick.at);
      if (Math.abs(free - y) < 13) continue;
      free = y;
      const wide = brush.measureText(tick.text).width;
      brush.globalAlpha = 0.75;
      brush.fillStyle = colour('bg');
      brush.fillRect(right ? x - wide - 6 : x + 3, y - 7, wide + 4, 14);
      brush.globalAlpha = 1;
      brush.fillStyle = colour('soft');
      brush.fillText(tick.text, right ? x - 5 : x + 5, y);
    }
    brush.fillStyle = colour('fg');
    brush.textAlign = index === 0 ? 'left' : right ? 'right' : 'center';
    brush.fillText(axis.scale.title, index === 0 ? 4 : right ? this.box.clientWidth - 4 : x, 12);
  }

  private polyline(brush: CanvasRenderingContext2D, trial: Trial, paint: string): void {
    brush.strokeStyle = paint;
    brush.beginPath();
    this.axes.forEach((axis, index) => brush.lineTo(this.x(index), this.y(axis.at(trial) ?? INACTIVE)));
    brush.stroke();
  }

  private keeps(trial: Trial): boolean {
    return this.axes.every((axis) => {
      const range = this.kept.get(axis.name);
      if (!range) return true;
      const at = axis.at(trial);
      return at !== null && at >= range[0] && at <= range[1];
    });
  }

  private begin(event: PointerEvent): void {
    const index = this.axes.findIndex((_, place) => Math.abs(this.x(place) - event.offsetX) < 14);
    if (index < 0) return;
    this.focused = index;
    this.drag = {axis: this.axes[index], from: this.share(event.offsetY)};
    this.kept.delete(this.axes[index].name);
    this.canvas.setPointerCapture(event.pointerId);
    this.paint();
  }

  private move(event: PointerEvent): void {
    const near = this.axes.some((_, place) => Math.abs(this.x(place) - event.offsetX) < 14);
    this.canvas.style.cursor = near ? 'ns-resize' : '';
    if (!this.drag) return;
    const to = this.share(event.offsetY);
    const range: [number, number] = [Math.min(this.drag.from, to), Math.max(this.drag.from, to)];
    if (range[1] - range[0] > 0.01) this.kept.set(this.drag.axis.name, range);
    this.paint();
  }

  private key(event: KeyboardEvent): void {
    const axis = this.axes[this.focused];
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (step) this.focused = (this.focused + step + this.axes.length) % this.axes.length;
    else if (event.key === 'Escape') this.kept.clear();
    else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
      const start = this.kept.get(axis.name)?.[0] ?? (event.key === 'ArrowUp' ? -0.25 : 1);
      const low = Math.min(Math.max(start + (event.key === 'ArrowUp' ? 0.25 : -0.25), 0), 0.75);
      this.kept.set(axis.name, [low, low + 0.25]);
    } else if (event.key === 'Enter') {
      const kept = this.trials.filter((trial) => this.keeps(trial));
      const {run} = this;
      if (run && kept.length) this.open(kept.reduce((a, b) => (run.better(run.score(b)!, run.score(a)!) ? b : a)).id);
    } else return;
    event.preventDefault();
    this.paint();
  }

  private share(y: number): number {
    return Math.min(Math.max(1 - (y - TOP) / (this.box.clientHeight - TOP - BOTTOM), 0), 1);
  }

  private x(index: number): number {
    return 16 + (index * (this.box.clientWidth - 32)) / Math.max(this.axes.length - 1, 1);
  }

  private y(share: number): number {
    return TOP + (1 - share) * (this.box.clientHeight - TOP - BOTTOM);
  }
}
