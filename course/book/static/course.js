// Widgets speak to MathJax 2; the page has MathJax 3. Translate the one call that they make.
window.addEventListener("DOMContentLoaded", () => {
  const mathjax = window.MathJax;
  if (mathjax && mathjax.startup && !mathjax.Hub) {
    mathjax.Hub = {
      Queue: ([, , element]) => mathjax.startup.promise.then(() => mathjax.typesetPromise([element])),
    };
  }
});
