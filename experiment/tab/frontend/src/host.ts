// TensorBoard around this page: its messages, its address, its colours. No package of npm has this; the messages are
// those of tensorboard/components/experimental/plugin_lib.
type Message = {type: string; isReply: boolean};

const PREFIX = 'p.experiment.';
const channel = new MessageChannel();
const listeners = new Map<string, () => void>();

channel.port1.onmessage = (event) => {
  const message = JSON.parse(event.data) as Message;
  if (message.isReply) return;
  listeners.get(message.type)?.();
  channel.port1.postMessage(JSON.stringify({...message, payload: null, isReply: true}));
};
window.parent.postMessage('experimental.bootstrap', '*', [channel.port2]);

function parts(): string[] {
  return window.parent.location.hash.slice(1).split('&').filter(Boolean);
}

/**
 * The part of the address that is this tab's: {run: 'x'} for "#experiment&p.experiment.run=x". It is read from the
 * parent, which has the same origin: TensorBoard's own message answers {} on a page that has just been opened.
 */
export function address(): Record<string, string> {
  const pairs = parts().filter((part) => part.startsWith(PREFIX)).map((part) => part.slice(PREFIX.length).split('='));
  return Object.fromEntries(pairs.map(([name, value]) => [decodeURIComponent(name), decodeURIComponent(value ?? '')]));
}

/** Write this tab's part of the address, so that it can be passed on. */
export function setAddress(values: Record<string, string>): void {
  const ours = Object.entries(values).filter(([, value]) => value);
  const written = ours.map(([name, value]) => `${PREFIX}${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
  const others = parts().filter((part) => !part.startsWith(PREFIX));
  window.parent.history.replaceState(window.parent.history.state, '', '#' + [...others, ...written].join('&'));
}

/** Call back when TensorBoard's reload button is pressed, or its timer rings. */
export function onReload(callback: () => void): void {
  listeners.set('experimental.DataReloaded', callback);
}

/** Call back now and whenever TensorBoard switches between dark and light, of which it sends no message. */
export function onDark(callback: (dark: boolean) => void): void {
  const body = window.parent.document.body;
  const look = () => callback(body.classList.contains('dark-mode'));
  new MutationObserver(look).observe(body, {attributes: true, attributeFilter: ['class']});
  look();
}

/** Whether another tab is shown: TensorBoard keeps this frame then, with `visibility: hidden`. */
export function hidden(): boolean {
  const frame = window.frameElement as HTMLElement | null;
  return document.hidden || frame?.style.visibility === 'hidden';
}

/** Name the browser's window. */
export function setTitle(title: string): void {
  window.parent.document.title = title;
}
