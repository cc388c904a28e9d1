// What may be pasted: text. A control character in it would be a key that the person did not press. Worst, the sequence that
// ends a bracketed paste would have the rest of the text taken for typing, and run at once.

/** All of C0 and C1 but tab, line feed and carriage return, and DEL. */
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;

export function pastedTextClean(text: string): string {
  return text.replace(CONTROLS, "");
}
