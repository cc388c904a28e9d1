//! What mail looks like: the same words as plain text and as a page that reads well in light and dark, large and small,
//! and to a screen reader. Nothing is loaded from anywhere.

use identity::api::{InvitedProject, OpenInvitation};
use kernel::{Secret, text::html_escape};

use super::{
    delivery::MailContent,
    events::{at, bounded_line},
    notice::Severity,
};

pub struct Rendered {
    pub subject: String,
    pub text: String,
    pub html: String,
}

/// `link` is where the product shows it; `settings` where people choose what they are told.
pub fn render(content: &MailContent, link: &str, settings: &str) -> Rendered {
    let notice = &content.notice;
    let subject = one_line(&format!("[GPUaaS] {}", notice.title));
    let greeting = format!("Hello {},", one_line(&content.name));
    let why = "You receive this mail because of your role, or because you created the resource.";
    let text = format!(
        "{greeting}\n\n{}\n\n{link}\n\n-- \n{why}\nChange your notification preferences: {settings}\n",
        notice.text
    );
    let accent = match notice.kind.severity() {
        Severity::Info => "#1f6feb",
        Severity::Warning => "#9a6700",
        Severity::Critical => "#cf222e",
    };
    let footer =
        format!("{why} <a href=\"{}\">Change your notification preferences</a>.", html_escape(settings));
    let html = page(&Words {
        accent,
        severity: notice.kind.severity().name(),
        title: &notice.title,
        greeting: &greeting,
        text: &notice.text,
        link,
        link_text: "Open in GPUaaS",
        footer: &footer,
    });
    Rendered { subject, text, html }
}

/// A mail that invites; `link` is its only one.
pub fn render_invitation(open: &OpenInvitation, link: &Secret) -> Rendered {
    let (org, by) = (bounded_line(&open.org_name), bounded_line(&open.invited_by));
    let who = if by.is_empty() { "Somebody".to_owned() } else { by };
    let project = match &open.project {
        Some(InvitedProject { name: Some(name), role }) => {
            format!(", and its project {} as {}", bounded_line(name), role.name())
        }
        _ => String::new(),
    };
    let invited = format!("{who} invited you to join {org} as {}{project}.", open.role.name());
    let until = at(open.expires_at);
    let how = format!(
        "Open the link to create an account, or to join with an existing one. It can be used once, and \
         expires at {until}. Do not forward it: anyone with the link can join in your place."
    );
    let why =
        "You receive this mail because somebody entered your address. If you do not know them, ignore it.";
    let title = format!("Invitation to {org}");
    let html = page(&Words {
        accent: "#1f6feb",
        severity: Severity::Info.name(),
        title: &title,
        greeting: "Hello,",
        text: &format!("{invited} {how}"),
        link: link.expose(),
        link_text: "Open the invitation",
        footer: why,
    });
    let text = format!("Hello,\n\n{invited} {how}\n\n{}\n\n-- \n{why}\n", link.expose());
    Rendered { subject: one_line(&format!("[GPUaaS] {title}")), text, html }
}

/// What a page says. The footer is markup of our own; all else is escaped.
struct Words<'a> {
    accent: &'a str,
    severity: &'a str,
    title: &'a str,
    greeting: &'a str,
    text: &'a str,
    link: &'a str,
    link_text: &'a str,
    footer: &'a str,
}

fn page(words: &Words<'_>) -> String {
    PAGE.replace("{accent}", words.accent)
        .replace("{severity}", words.severity)
        .replace("{title}", &html_escape(words.title))
        .replace("{greeting}", &html_escape(words.greeting))
        .replace("{text}", &html_escape(words.text))
        .replace("{link_text}", words.link_text)
        .replace("{link}", &html_escape(words.link))
        .replace("{footer}", words.footer)
}

/// Text that cannot begin another header or line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect()
}

const PAGE: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
:root { color-scheme: light dark; }
body { margin: 0; padding: 24px; background: #f6f8fa; color: #1f2328; font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 560px; margin: 0 auto; padding: 24px; background: #ffffff; border-top: 4px solid {accent}; border-radius: 6px; }
h1 { margin: 0 0 16px; font-size: 20px; }
a { color: #0969da; }
footer { max-width: 560px; margin: 16px auto 0; font-size: 14px; color: #59636e; }
@media (prefers-color-scheme: dark) {
body { background: #0d1117; color: #e6edf3; }
main { background: #161b22; }
a { color: #58a6ff; }
footer { color: #9198a1; }
}
</style>
</head>
<body>
<main role="main" data-severity="{severity}">
<h1>{title}</h1>
<p>{greeting}</p>
<p>{text}</p>
<p><a href="{link}">{link_text}</a></p>
</main>
<footer>
<p>{footer}</p>
</footer>
</body>
</html>
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::notice::{Notice, NoticeKind, Target};

    #[test]
    fn what_others_wrote_cannot_become_markup_or_headers() {
        let notice = Notice {
            kind: NoticeKind::LowBalance,
            title: "a\r\nBcc: x@example.org".to_owned(),
            text: "<script>alert(1)</script> {settings}".to_owned(),
            target: Target::default(),
        };
        let content = MailContent { name: "<b>Eve</b>\r\nBcc: y".to_owned(), notice };
        let mail = render(&content, "https://gpuaas.test/\"x", "https://gpuaas.test/me");
        assert!(!mail.subject.contains(['\r', '\n']));
        assert!(!mail.html.contains("<script>") && !mail.html.contains("<b>Eve"));
        assert!(mail.html.contains("&lt;script&gt;") && mail.html.contains("&#123;settings&#125;"));
        assert!(!mail.html.contains("test/\"x"));
        assert!(mail.text.starts_with("Hello <b>Eve</b>  Bcc: y,\n"));
    }
}
