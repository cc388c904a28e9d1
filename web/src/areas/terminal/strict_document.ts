// The document that xterm.js makes its elements with.
//
// xterm.js writes its rules into <style> elements, and the colours of single characters into style attributes. The content
// security policy of the page allows neither, because a policy that allows its own inline styles allows those of an attacker
// too. Style sheets and declarations that a script makes are allowed: this document turns the former into the latter.

/** A stand-in for a <style> element: what is written into it is a style sheet of the document while it is there. */
function makeSheetElement(): HTMLElement {
  const element = document.createElement("template");
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}

/** For <span>: sets declarations instead of an attribute with the same text. */
function setAttribute(this: HTMLElement, name: string, value: string): void {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}

function createElement(name: string): HTMLElement {
  return name === "style" ? makeSheetElement() : document.createElement(name);
}

/** This page's document in everything but the <style> elements that it creates. */
export function makeStrictDocument(): Document {
  // xterm.js makes the elements of characters with the page's own document, whichever it is given.
  HTMLSpanElement.prototype.setAttribute = setAttribute;
  return new Proxy(document, {
    get(target, name) {
      if (name === "createElement") return createElement;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  });
}
