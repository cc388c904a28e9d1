// The colours of the terminal, light and dark, as the person's system prefers. The background is that of the page.

import type { ITheme } from "@xterm/xterm";

const DARK: ITheme = {
  background: "#0d1117",
  foreground: "#e6edf3",
  cursor: "#e6edf3",
  cursorAccent: "#0d1117",
  selectionBackground: "#264f78",
  black: "#484f58",
  red: "#ff7b72",
  green: "#3fb950",
  yellow: "#d29922",
  blue: "#58a6ff",
  magenta: "#bc8cff",
  cyan: "#39c5cf",
  white: "#b1bac4",
  brightBlack: "#6e7681",
  brightRed: "#ffa198",
  brightGreen: "#56d364",
  brightYellow: "#e3b341",
  brightBlue: "#79c0ff",
  brightMagenta: "#d2a8ff",
  brightCyan: "#56d4dd",
  brightWhite: "#ffffff",
};

const LIGHT: ITheme = {
  background: "#ffffff",
  foreground: "#1f2328",
  cursor: "#1f2328",
  cursorAccent: "#ffffff",
  selectionBackground: "#b6d7ff",
  black: "#24292f",
  red: "#cf222e",
  green: "#116329",
  yellow: "#7d4e00",
  blue: "#0969da",
  magenta: "#8250df",
  cyan: "#1b7c83",
  white: "#6e7781",
  brightBlack: "#57606a",
  brightRed: "#a40e26",
  brightGreen: "#1a7f37",
  brightYellow: "#633c01",
  brightBlue: "#0550ae",
  brightMagenta: "#6639ba",
  brightCyan: "#3192aa",
  brightWhite: "#424a53",
};

/** Programs choose colours for dark screens: what could not be read is made darker or lighter. */
export const CONTRAST_RATIO = 4.5;

/** Calls `apply` with the theme now and whenever the preference changes; gives what stops it. */
export function followTheme(apply: (theme: ITheme) => void): () => void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const choose = () => apply(dark.matches ? DARK : LIGHT);
  choose();
  dark.addEventListener("change", choose);
  return () => dark.removeEventListener("change", choose);
}
