//! What people fill in and press.

use kernel::text::html_escape;

pub struct Field<'a> {
    pub label: &'a str,
    pub name: &'a str,
    pub kind: &'a str,
    pub autocomplete: &'a str,
    pub value: &'a str,
    pub hint: &'a str,
    pub required: bool,
    pub read_only: bool,
}

impl<'a> Field<'a> {
    pub fn email(value: &'a str) -> Self {
        Self::new("E-mail address", "email", "email", "username").value(value)
    }

    pub fn password(label: &'a str, name: &'a str, autocomplete: &'a str) -> Self {
        Self::new(label, name, "password", autocomplete)
    }

    pub fn new(label: &'a str, name: &'a str, kind: &'a str, autocomplete: &'a str) -> Self {
        Self { label, name, kind, autocomplete, value: "", hint: "", required: true, read_only: false }
    }

    pub fn value(self, value: &'a str) -> Self {
        Self { value, ..self }
    }

    pub fn hint(self, hint: &'a str) -> Self {
        Self { hint, ..self }
    }

    pub fn optional(self) -> Self {
        Self { required: false, ..self }
    }

    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    pub(crate) fn html(&self) -> String {
        let Self { label, name, kind, autocomplete, .. } = self;
        let value = html_escape(self.value);
        let (described, hint) = match self.hint {
            "" => (String::new(), String::new()),
            hint => (
                format!(" aria-describedby=\"{name}-hint\""),
                format!("<div class=\"hint\" id=\"{name}-hint\">{}</div>", html_escape(hint)),
            ),
        };
        let required = if self.required { " required" } else { "" };
        let read_only = if self.read_only { " readonly" } else { "" };
        format!(
            "<label for=\"{name}\">{}</label><input id=\"{name}\" name=\"{name}\" type=\"{kind}\" autocomplete=\"{autocomplete}\" \
             maxlength=\"512\" value=\"{value}\"{described}{required}{read_only}>{hint}",
            html_escape(label)
        )
    }
}

/// A button and the value of the field `decision` that it sends.
pub struct Button<'a> {
    pub text: &'a str,
    pub decision: &'a str,
    pub plain: bool,
}

impl Button<'_> {
    pub(crate) fn html(&self) -> String {
        let class = if self.plain { " class=\"plain\"" } else { "" };
        let decision = match self.decision {
            "" => String::new(),
            value => format!(" name=\"decision\" value=\"{value}\""),
        };
        format!("<button type=\"submit\"{class}{decision}>{}</button>", html_escape(self.text))
    }
}
