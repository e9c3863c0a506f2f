// The widget manager finds its fonts beside its own module: tell require.js where that is.
window.require.config({ baseUrl: new URL("../vendor/", document.currentScript.src).href });
